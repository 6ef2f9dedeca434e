-- diff_spec.lua - the comparison of two policies: its regions, its witnesses, its exactness.

local support = require("support")
local canned = require("canned_context")
local compare = require("compare")
local json = require("loam.report.json")
local regions = require("loam.command.diff.regions")

local PAIRS, REQUESTS = 24, 40

-- Compares two policies with these bodies of pick.
local function diff(old, new, above, new_above)
  return regions.compare(compare.ask(support.file(old, above), "verb nodes"),
    compare.ask(support.file(new, new_above or above), "verb nodes"))
end

-- Returns the regions as a list of short texts.
local function told(made)
  local out = {}
  for i, region in ipairs(made.regions) do
    out[i] = ("%s %s %d-%d %s>%s"):format(region.kind, region.sites[1].tag, region.from, region.to,
      region.old[1].name, region.new[1].name)
    for _, words in ipairs(region.conditions) do out[i] = out[i] .. ", " .. words end
  end
  return out
end

-- Runs the command on two policies. Returns its exit status, its output and its errors.
local function run(old, new, options)
  local status, context = canned.run("diff old.lua new.lua " .. (options or ""), nil, nil,
    function(path, query) return compare.ask(path == "old.lua" and old or new, query) end)
  return status, context.out, context.err
end

describe("the comparison of two policies", function()
  it("is empty for a policy and itself", function()
    for seed = 1, 40 do
      local text = require("generate").policy(seed)
      local answer = compare.ask(text, "verb nodes")
      if answer:sub(1, 1) ~= "{" then
        local made = regions.compare(answer, answer)
        assert.equal(0, #made.regions + #made.undecided + made.left_over + #made.strategies)
      end
    end
  end)

  it("gives exactly the interval by which a constant moved", function()
    local made = diff("if req.size < 1000 then return a end return b",
      "if req.size < 1500 then return a end return b")
    assert.same({ "moved  1000-1499 b>a" }, told(made))
  end)

  it("keeps to the tags that the change is about, with the shortest of them", function()
    local made = diff("if req.tag:under(\"tensor\") and req.size >= 64 then return a end return b",
      "if req.tag:under(\"tensor\") and req.size >= 65 then return a end return b")
    assert.same({ "moved tensor 64-64 a>b" }, told(made))
    assert.same({ "req.tag:under(\"tensor\")" }, made.regions[1].questions)
  end)

  it("joins classes of tags with one difference", function()
    local body = "if req.tag:is(\"x\") then if req.size == 7 then return c end end "
    local made = diff(body .. "if req.size < 4096 then return a end return b",
      body .. "if req.size < 8192 then return a end return b")
    assert.same({ "moved  4096-8191 b>a" }, told(made))
    assert.equal(2, #made.regions[1].sites)
  end)

  it("is exact in every input", function()
    local inputs = { ["req.align"] = "req.align == 32", ["req.node"] = "req.node == 20",
      ["req.device"] = "req.device == 20", ["req.line"] = "req.line == 20",
      ["req.live"] = "req.live == 20", ["loam.node(0).free"] = "loam.node(0).free == 20" }
    for input, words in pairs(inputs) do
      local made = diff(("if %s <= 20 then return a end return b"):format(input),
        ("if %s < 20 then return a end return b"):format(input))
      local wanted = input ~= "req.align" and { "moved  0-140737488355328 a>b, " .. words } or {}
      assert.same(wanted, told(made))
    end
    local made = diff("if req.align <= 16 then return a end return b",
      "if req.align <= 32 then return a end return b")
    assert.same({ "moved  0-140737488355328 b>a, req.align == 32" }, told(made))
    made = diff("if req.zero then return a end return b", "return b")
    assert.same({ "moved  0-140737488355328 a>b, req.zero" }, told(made))
  end)

  it("is exact in sums of inputs", function()
    local made = diff("if req.size - req.live < 100 then return a end return b",
      "if req.size - req.live < 200 then return a end return b")
    assert.same({ "moved  0-140737488355328 b>a, req.size - req.live >= 100 and "
      .. "req.size - req.live < 200" }, told(made))
    assert.equal(0, #made.undecided)
  end)

  it("calls undecided what it cannot decide", function()
    local body = "if req.size %% 65536 == 65535.5 - req.live %% 2 then return %s end return b"
    local made = diff(body:format("a"), body:format("c"))
    assert.is_true(#made.undecided > 0 and #made.regions == 0)
  end)

  it("puts newly denied requests first", function()
    local above = "local no = loam.deny { name = \"no\" } "
    local made = diff("if req.size < 10 then return a end if req.size < 20 then return b end "
      .. "return c", "if req.size < 10 then return b end if req.size < 20 then return no end "
      .. "return c", above)
    assert.same({ "denied  10-19 b>no", "moved  0-9 a>b" }, told(made))
  end)

  it("tells renamed strategies from changed ones", function()
    local old = "local s = loam.host { name = \"s\", align = 64, limit = 8192 } "
    local renamed = "local s = loam.host { name = \"t\", align = 64, limit = 8192 } "
    local limited = "local s = loam.host { name = \"s\", align = 64, limit = 4096 } "
    local changed = "local s = loam.host { name = \"s\", align = 128, limit = 8192 } "
    local made = diff("return s", "return s", old, renamed)
    assert.same({}, told(made))
    assert.equal("renamed", made.strategies[1].change)
    made = diff("return s", "return s", old, limited)
    assert.same({ "limits  0-140737488355328 s>s" }, told(made))
    assert.same({ { option = "limit", old = 8192, new = 4096 } }, made.strategies[1].options)
    made = diff("return s", "return s", old, changed)
    assert.same({ "options  0-140737488355328 s>s" }, told(made))
  end)

  it("sees a fallback that is lost, and one whose limit changed", function()
    local made = diff("return a:or_else(b)", "return a")
    assert.same({ "fallback  0-140737488355328 a>a" }, told(made))
    local above = "local s = loam.host { name = \"s\", limit = %d } "
    made = diff("return a:or_else(s)", "return a:or_else(s)", above:format(8192),
      above:format(4096))
    assert.same({ "limits  0-140737488355328 a>a" }, told(made))
  end)

  it("tells apart policies that differ for tags with any bytes", function()
    local made = diff("if req.tag == \"a\\n\\\"\\255\" then return a end return b", "return b")
    assert.same({ "moved a\n\"\255 0-140737488355328 a>b" }, told(made))
  end)

  it("misses no difference and invents none, in random pairs", function()
    for seed = 1, PAIRS do
      local old, new = compare.pair(seed)
      local found, message = compare.run(old, new, REQUESTS)
      assert.is_truthy(found, ("seed %d: %s"):format(seed, tostring(message)))
    end
  end)
end)

describe("loam diff", function()
  local OLD = support.file("if req.size < 1000 then return a end return b")
  local NEW = support.file("if req.size < 1500 then return a end return b")

  it("answers in JSON", function()
    local status, out = run(OLD, NEW, "--json")
    local answer = json.decode(out)
    assert.equal(1, status)
    assert.equal(0, answer.undecided)
    assert.is_false(answer.alike)
    assert.equal(1, #answer.regions)
    local region = answer.regions[1]
    assert.same({ "b", "a", "moved" }, { region.old, region.new, region.kind })
    assert.same({ from = 1000, to = 1499 }, region.sizes)
    assert.same({ tag = "", size = 1000, align = 16, zero = false }, region.witness)
  end)

  it("ends with 0 if the policies are alike, or the differences are allowed", function()
    assert.equal(0, (run(OLD, OLD)))
    assert.equal(1, (run(OLD, NEW)))
    assert.equal(1, (run(OLD, NEW, "--allow limits,denied")))
    assert.equal(0, (run(OLD, NEW, "--allow limits --allow moved")))
  end)

  it("shows each region with a command that shows its witness", function()
    local _, out = run(OLD, NEW)
    assert.matches("old.lua %-> new.lua: 1 region differs\n", out)
    assert.matches("moved      \"\": 1000 to < 1500\n", out, 1, true)
    assert.matches("b -> a\n", out, 1, true)
    assert.matches("witness --tag '' --size 1000\n", out, 1, true)
  end)

  it("escapes tags", function()
    local old = support.file("if req.tag == \"a|`\\n\\255'\" then return a end return b")
    local new = support.file("return b")
    local _, out = run(old, new, "--markdown")
    assert.matches("| moved | a\\|\\`\\\\x0a\\\\xff' | any size |  | a | b | `` ", out, 1, true)
    local _, text = run(old, new)
    assert.matches("witness --tag $'a|`\\x0a\\xff\\'' --size 0\n", text, 1, true)
    local _, answer = run(old, new, "--json")
    assert.equal("617c600aff27", json.decode(answer).regions[1].witness.tag_hex)
  end)

  it("ends with 2 and the errors if a policy cannot be read", function()
    local status, out, err = run(OLD, "return 1\n")
    assert.same({ 2, "" }, { status, out })
    assert.matches("^test.lua:1: policy: ", err:gsub("generated.lua", "test.lua"))
    status, out = run(OLD, "return 1\n", "--json")
    assert.equal(2, status)
    assert.is_false(json.decode(out).ok)
  end)

  it("ends with 2 if a policy does not confirm a witness", function()
    local status, _, err = run(OLD, NEW, "--json")
    assert.same({ 1, "" }, { status, err })
    local context
    status, context = canned.run("diff old.lua new.lua", { confirm = "chain h61 h",
      nodes = { one_by_one = { compare.ask(OLD, "verb nodes"), compare.ask(NEW, "verb nodes") } } })
    assert.equal(2, status)
    assert.equal("", context.out)
    assert.matches("a fault of loam: old.lua does not confirm b -> a", context.err, 1, true)
  end)

  it("refuses arguments that make no sense", function()
    for args, words in pairs {
      ["diff a"] = "OLD or NEW is missing", ["diff a b c"] = "one argument too many",
      ["diff a b --allow x"] = "'x' is no kind of difference",
      ["diff a b --json --markdown"] = "do not go together",
    } do
      local status, context = canned.run(args)
      assert.equal(2, status)
      assert.matches(words, context.err, 1, true)
    end
  end)
end)
