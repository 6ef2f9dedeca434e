-- diff_spec.lua - the comparison of two policies: its regions, its witnesses, its exactness.

local support = require("support")
local canned = require("canned_context")
local compare = require("compare")
local impact = require("loam.command.diff.impact")
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

  it("names the keys of a table that the change is about, and not the witness alone", function()
    local function questions(old, new)
      local body = " return t[req.tag:part(2)] or b"
      local made = diff(body, body, "local t = " .. old, "local t = " .. new)
      assert.equal(1, #made.regions)
      return made.regions[1].questions[2]
    end
    assert.equal('req.tag:part(2) == "k1"', questions("{}", "{ k1 = a }"))
    assert.equal('req.tag:part(2) is one of "k1", "k2"', questions("{}", "{ k1 = a, k2 = a }"))
    assert.equal('req.tag:part(2) is one of "k1", "k2", "k3", "k4" and 1 more',
      questions("{}", "{ k1 = a, k2 = a, k3 = a, k4 = a, k5 = a }"))
  end)

  it("names a question with the answer no, without which it would name other tags too", function()
    local function questions(old, new)
      local made = diff(old, new)
      assert.equal(1, #made.regions)
      return made.regions[1].questions
    end
    local below = 'if req.tag:under("x.y") then return a end return b'
    local all = 'if req.tag:under("log") or req.tag:under("x") then return a end return b'
    assert.same({ 'req.tag:under("x")', 'not req.tag:under("x.y")' },
      questions('if req.tag:under("x") then return a end return b', below))
    assert.same({ 'req.tag:under("log")' },
      questions('if req.tag:under("x") then return a end return b', all))
    assert.same({ 'req.tag:glob("big.*")', 'req.tag ~= "big.a"' },
      questions('if req.tag == "big.a" or req.tag:glob("big.*") then return a end return b',
        'if req.tag == "big.a" then return a end return b'))
  end)

  it("names no question that the classes of one region answer differently", function()
    local made = diff('if req.tag:under("x.y") then return a:or_else(b) end '
      .. 'if req.tag:under("x") then return a:or_else(b) end return b',
      'if req.tag:under("x") then return a end return b')
    assert.equal(1, #made.regions)
    assert.same({ 'req.tag:under("x")' }, made.regions[1].questions)
    -- The class of part 2 was not asked for part 3.
    local body = 'if req.tag:under("x") then if req.tag:part(2) == "hot" then return %s end '
      .. 'if req.tag:part(3) == "big" then return b end return %s end return b'
    made = diff(body:format("a", "a"), body:format("c", "c"))
    assert.equal(1, #made.regions)
    assert.same({ 'req.tag:under("x")' }, made.regions[1].questions)
    made = diff('if req.tag:under("x") then return t[req.tag:part(2)] or b end return b',
      'if req.tag:under("x") then return t[req.tag:part(2)] or c end return b',
      "local t = { k1 = a, k2 = c } ")
    assert.same({ 'req.tag:under("x")', "req.tag:part(2) is no key of its table" },
      made.regions[1].questions)
  end)

  it("names few of many questions with the answer no", function()
    local many = {}
    for i = 1, 9 do many[i] = ('if req.tag:under("x.y%d") then return b end '):format(i) end
    local body = table.concat(many) .. 'if req.tag:under("x") then return %s end return b'
    local list = diff(body:format("a"), body:format("c")).regions[1].questions
    assert.equal(6, #list)
    assert.same({ 'req.tag:under("x")', 'not req.tag:under("x.y1")' }, { list[1], list[2] })
    assert.equal("other questions have the answer no", list[6])
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

  it("knows that the remainder of a huge number is not exact", function()
    local body = "if (req.live ^ 3) % 37 < 1000 then return a end return b"
    local made = diff(body, "return a")
    assert.is_true(#made.regions + #made.undecided > 0)
    assert.same({}, told(diff("if req.live % 37 < 1000 then return a end return b", "return a")))
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
    local soft = "local s = loam.host { name = \"s\", align = 64, limit = 8192, soft = 4096 } "
    made = diff("return s", "return s", old, soft)
    assert.same({ "limits  0-140737488355328 s>s" }, told(made))
    assert.same({ { option = "soft", new = 4096 } }, made.strategies[1].options)
    local shared = "local s = loam.host { name = \"s\", align = 64, limit = 8192, shared = %q } "
    made = diff("return s", "return s", old, shared:format("kv"))
    assert.same({ "limits  0-140737488355328 s>s" }, told(made))
    assert.same({ { option = "shared", new = "kv" } }, made.strategies[1].options)
    made = diff("return s", "return s", shared:format("kv"), shared:format("cache"))
    assert.same({ { option = "shared", old = "kv", new = "cache" } }, made.strategies[1].options)
    made = diff("return s", "return s", shared:format("kv"), shared:format("kv"))
    assert.same({}, told(made))
    made = diff("return s", "return s", old, changed)
    assert.same({ "options  0-140737488355328 s>s" }, told(made))
  end)

  it("is empty for an option that says what holds without it", function()
    for _, option in ipairs { "zero", "prefault", "lock", "guard" } do
      local made = diff("return s", "return s", "local s = loam.host { name = \"s\" } ",
        ("local s = loam.host { name = \"s\", %s = false } "):format(option))
      assert.same({}, told(made))
      assert.same({}, made.strategies)
    end
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
    assert.matches("moved      any tag: 1000 to < 1500\n", out, 1, true)
    assert.matches("b -> a\n", out, 1, true)
    assert.matches("witness --tag '' --size 1000\n", out, 1, true)
  end)

  it("shows what a witness needs and no option gives as a comment of a shell", function()
    local function body(bytes)
      return support.file("if loam.node(0).free >= " .. bytes .. " then return a end return b")
    end
    local _, out = run(body(4096), body(8192))
    assert.matches("witness --tag '' --size 0 --node-free 0=4096\n", out, 1, true)
  end)

  it("knows that a remainder of integers is an integer below the divisor", function()
    local function body(condition)
      return support.file("if " .. condition .. " then return a end return b")
    end
    local status, out = run(body("req.size % 4096 == 0"), body("req.size % 4096 < 1.5"))
    assert.equal(1, status)
    assert.matches("1 region differs\n", out, 1, true)
    assert.matches("where req.size % 4096 == 1\n", out, 1, true)
    for _, condition in ipairs { "req.size % 4096 < 0.5", "req.size % 4096 <= 0",
        "not (req.size % 4096 >= 1)", "1 > req.size % 4096" } do
      assert.equal(0, (run(body("req.size % 4096 == 0"), body(condition))), condition)
    end
    status, out = run(body("req.size / 3 > 0"), body("req.size / 3 > 100.25"))
    assert.equal(1, status)
    assert.matches("where req.size / 3 > 0 and req.size / 3 <= 100.25\n", out, 1, true)
  end)

  it("says which limits do not count memory that is live already", function()
    local function policy(options)
      return "local s = loam.host { " .. options .. " }\n"
        .. "return loam.policy { name = \"p\", pick = function() return s end }\n"
    end
    local function says(old, new)
      local _, out = run(policy(old), policy(new))
      return out:find("(its limit does not count memory that is live already)\n", 1, true) ~= nil
    end
    local plain, limited = "name = \"s\"", "name = \"s\", limit = 8192"
    assert.is_true(says(plain, limited))
    assert.is_true(says(limited, "name = \"t\", limit = 8192"))
    assert.is_true(says(limited, "name = \"s\", limit = 9000, align = 64"))
    assert.is_true(says(limited, "name = \"s\", limit = 8192, shared = \"s\""))
    assert.is_false(says(limited, "name = \"s\", limit = 9000, soft = 5000"))
    assert.is_false(says(limited, plain))
    assert.is_false(says(plain, "name = \"t\""))
  end)

  it("escapes tags", function()
    local old = support.file("if req.tag == \"a|`\\n\\255'\" then return a end return b")
    local new = support.file("return b")
    local _, out = run(old, new, "--markdown")
    assert.matches("| moved | a\\|\\`\\\\x0a\\\\xff' | any size | req.tag == \"a\\|", out, 1, true)
    local _, text = run(old, new)
    assert.matches("witness --tag $'a|`\\x0a\\xff\\'' --size 0\n", text, 1, true)
    local _, answer = run(old, new, "--json")
    assert.equal("617c600aff27", json.decode(answer).regions[1].witness.tag_hex)
  end)

  it("says which tags and which calls a region is about, also in Markdown", function()
    local old = support.file("if req.tag:under('db') then return a end return b")
    local new = support.file("if req.tag:under('db') then return b end\n" ..
      "if req.file:glob('*/foo.c') then return a end return b")
    local _, out = run(old, new)
    assert.matches("moved      other tags, such as \"\": any size\n", out, 1, true)
    assert.matches("where req.file:glob(\"*/foo.c\")\n", out, 1, true)
    assert.matches("moved      db: any size\n", out, 1, true)
    _, out = run(old, new, "--markdown")
    assert.matches("| other tags, such as \"\" | any size | req.file:glob(\"\\*/foo.c\") | b | a |",
      out, 1, true)
    assert.matches("| moved | db | any size | req.tag:under(\"db\") | a | b |", out, 1, true)
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

  it("ends with 2 and the reason if a policy has no time to explain a witness", function()
    local fault = { file = "old.lua", class = "budget", reason = "took too long" }
    local refusal = { verb = "confirm", ok = false, policy = "old.lua", errors = { fault } }
    local status, context = canned.run("diff old.lua new.lua", {
      confirm = "chain h61 h\n" .. json.encode(refusal) .. "\n",
      nodes = { one_by_one = { compare.ask(OLD, "verb nodes"), compare.ask(NEW, "verb nodes") } } })
    assert.equal(2, status)
    assert.equal("", context.out)
    assert.matches("old.lua: budget: took too long", context.err, 1, true)
  end)

  it("refuses arguments that make no sense", function()
    for args, words in pairs {
      ["diff"] = "OLD or NEW is missing", ["diff a"] = "OLD may be left out with --pid",
      ["diff a --pid x"] = "'x' is not a process id",
      ["diff a b --pid all --pid 42"] = "do not go together",
      ["diff a b c"] = "one argument too many",
      ["diff a b --allow x"] = "'x' is no kind of difference",
      ["diff a b --json --markdown"] = "do not go together",
    } do
      local status, context = canned.run(args)
      assert.equal(2, status)
      assert.matches(words, context.err, 1, true)
    end
  end)
end)

describe("the blocks of programs", function()
  -- Makes an answer to `stats` with rows { tag, kind, { from, to, blocks }... }. A block has 16
  -- bytes, and half of the blocks are live.
  local function answer_of(rows)
    local answer = { pid = 42, rows = {} }
    for i, given in ipairs(rows) do
      local row = { tag = given[1], kind = given[2], strategy = given[2], classes = {} }
      for k = 3, #given do
        local from, to, n = unpack(given[k])
        row.classes[k - 2] = { from = from, to = to, total_blocks = n, total_bytes = 16 * n,
                               live_blocks = n / 2, live_bytes = 8 * n }
      end
      answer.rows[i] = row
    end
    return answer
  end

  local function words(bounds)
    return ("%d-%d"):format(bounds.total_blocks.least, bounds.total_blocks.most)
  end

  -- Returns the bounds of all blocks that differ, and the bounds of each region, as text.
  local function counted(made, rows)
    local found, list = impact.of(made, { answer_of(rows) }), {}
    for i, region in ipairs(made.regions) do
      local of = found.regions[region]
      list[i] = of and words(of.bounds) or "none"
    end
    return words(found.differ), list, found
  end

  -- Returns both results of `counted` as one list.
  local function told_of(made, rows)
    local all, list = counted(made, rows)
    return { all, list }
  end

  it("are exact where size classes lie in a region", function()
    local made = diff("if req.size <= 64 then return a end return b",
      "if req.size <= 96 then return a end return b")
    local all, list, found = counted(made, { { "x", "host", { 49, 64, 1000 }, { 65, 80, 20 },
      { 81, 96, 6 }, { 97, 112, 500 } } })
    assert.same({ "26-26", { "26-26" } }, { all, list })
    assert.same({ least = 13, most = 13 }, found.differ.live_blocks)
    assert.same({ least = 208, most = 208 }, found.kinds.moved.live_bytes)
    assert.equal(1526, found.all.total_blocks)
    assert.equal(20, impact.rows(found.regions[made.regions[1]])[1].bounds.total_blocks.most)
  end)

  it("have bounds where a region divides a size class", function()
    local made = diff("if req.size <= 64 then return a end return b",
      "if req.size <= 90 then return a end return b")
    assert.same({ "20-26", { "20-26" } }, told_of(made, { { "x", "host", { 65, 80, 20 },
      { 81, 96, 6 }, { 97, 112, 500 } } }))
    assert.same({ "0-7", { "0-7" } }, told_of(made, { { "x", "host", { 0, 2 ^ 47, 7 } } }))
    assert.same({ "0-26", { "0-26" } }, told_of(made, { { "x", "system", { 65, 80, 20 },
      { 81, 96, 6 } } }))
  end)

  it("have bounds where a region has conditions that no program tells", function()
    local made = diff("return b", "if req.node == 1 then return a end return b")
    assert.same({ "0-20", { "0-20" } }, told_of(made, { { "x", "host", { 65, 80, 20 } } }))
    made = diff("return b", "if req.func:is(\"f\") then return a end return b")
    assert.same({ "0-20", { "0-20" } }, told_of(made, { { "x", "host", { 65, 80, 20 } } }))
  end)

  it("differ for certain where several regions share a size class", function()
    local made = diff("return b", "if req.node == 1 then return a end return c")
    assert.same({ "20-20", { "0-20", "0-20", "0-20" } },
      told_of(made, { { "x", "host", { 65, 80, 20 } } }))
    made = diff("return b", "if req.size > 70 then return a end return c")
    assert.same({ "20-20", { "0-20", "0-20" } },
      told_of(made, { { "x", "host", { 65, 80, 20 } } }))
  end)

  it("are counted by tag", function()
    local made = diff("return b", "if req.tag:under(\"t\") then return a end return b")
    assert.same({ "8-8", { "8-8" } }, told_of(made, { { "t", "host", { 65, 80, 2 } },
      { "t.u", "host", { 1, 16, 6 } }, { "tt", "host", { 65, 80, 20 } } }))
  end)

  it("of undecided regions are only possible", function()
    local body = "if req.size %% 65536 == 65535.5 - req.live %% 2 then return %s end return b"
    local made = diff(body:format("a"), body:format("c"))
    local all, _, found = counted(made, { { "x", "host", { 65, 80, 20 } } })
    assert.equal("0-20", all)
    assert.equal("0-20", words(found.kinds.undecided))
  end)

  local OLD = support.file("if req.size < 1000 then return a end return b")
  local NEW = support.file("if req.size < 64 then return no end "
    .. "if req.size < 1500 then return a end return b", "local no = loam.deny() ")
  local PROGRAM = { pid = 42, program = "python3", state = "running", generation = 3, hash = "11",
                    path = "old.lua", name = "old", since_ms = 5 }
  local ANSWER = answer_of { { "x", "host", { 33, 48, 10 }, { 1025, 1280, 4 }, { 8193, 9000, 6 } } }

  -- Runs the command. The policies are old.lua and new.lua.
  local function run_with(args, answers)
    local status, context = canned.run("diff " .. args, answers, nil, function(path, query)
      local texts = { ["old.lua"] = OLD, ["new.lua"] = NEW }
      return compare.ask(texts[path] or path, query)
    end)
    return status, context.out, context.err
  end

  it("are named with --pid", function()
    local status, _, err = run_with("42 new.lua", {})
    assert.equal(2, status)
    assert.matches("loam diff: '42' is no file; a running program is named with --pid 42\n", err, 1,
      true)
  end)

  it("are shown behind the number of all blocks", function()
    local status, out = run_with("old.lua new.lua --pid 42", { seen = { [42] = ANSWER },
      boards = { PROGRAM } })
    assert.equal(1, status)
    assert.matches("\nof 20 blocks (320 B) that python3 (42) has allocated so far,\n"
      .. "  10 (160 B) would be denied, in all 14 (224 B) would be decided otherwise\n"
      .. "of 10 live blocks (160 B),\n"
      .. "  5 (80 B) would be denied, in all 7 (112 B) would be decided otherwise\ndenied ",
      out, 1, true)
    assert.matches("blocks 10 (160 B) so far, 5 (80 B) live\n"
      .. "                    x up to 48: 10 (160 B) so far, 5 (80 B) live\n", out, 1, true)
    out = select(2, run_with("old.lua new.lua --pid 42 --markdown", { seen = { [42] = ANSWER } }))
    assert.matches("| 10 (160 B) | 5 (80 B) |\n", out, 1, true)
    assert.matches("that process 42 has allocated so far, 10 (160 B) would be denied", out, 1, true)
  end)

  it("of several programs are added up", function()
    local other = {}
    for key, value in pairs(PROGRAM) do other[key] = value end
    other.pid = 43
    local answers = { seen = { [42] = ANSWER, [43] = ANSWER }, boards = { PROGRAM, other } }
    local _, out = run_with("old.lua new.lua --pid all --json", answers)
    local answer = json.decode(out)
    assert.same({ 42, 43 }, answer.impact.pids)
    assert.equal(40, answer.impact.total_blocks)
    assert.same({ least = 20, most = 20 }, answer.impact.kinds.denied.total_blocks)
    assert.same({ least = 20, most = 20 }, answer.regions[1].impact.blocks.total_blocks)
    answers.seen[43] = nil
    _, out = run_with("old.lua new.lua --pid all --json", answers)
    assert.same({ { pid = 43, error = "process 43 cannot be read" } },
      json.decode(out).impact.unread)
    local status, _, err = run_with("old.lua new.lua --pid 42 --pid 43", answers)
    assert.equal(2, status)
    assert.matches("process 43 cannot be read", err, 1, true)
    answers.boards[3] = { other_version = "7-1-2.board", folder = "/run/loam" }
    err = select(3, run_with("old.lua new.lua --pid all", answers))
    assert.matches("loam diff: /run/loam/7-1-2.board: programs on this board have another version "
      .. "of loam than this command, 1.2.3, and are not counted until", err, 1, true)
  end)

  it("tell the policy that is obeyed, where OLD is left out", function()
    local seen = { [42] = ANSWER }
    local function run_on(program, more)
      local answers = { seen = seen, boards = { program } }
      for key, value in pairs(more or {}) do answers[key] = value end
      return run_with("new.lua --pid 42", answers)
    end
    local _, out = run_on(PROGRAM, { hashes = { ["old.lua"] = "11" } })
    assert.matches("^old.lua %-> new.lua: 2 regions differ, 1 newly denied\n", out)
    local follows = { board = "/run/b" }
    for key, value in pairs(PROGRAM) do follows[key] = value end
    _, out = run_on(follows, { board = "/run/b", texts = { ["11"] = NEW },
                               hashes = { ["old.lua"] = "22" } })
    assert.matches("^old.lua %-> new.lua: every request gets equal memory\n", out)
    local status, _, err = run_on(PROGRAM, { hashes = { ["old.lua"] = "22" } })
    assert.equal(2, status)
    assert.matches("python3 (42) obeys a text of old.lua that neither", err, 1, true)
    local none = {}
    for key, value in pairs(PROGRAM) do none[key] = value end
    none.generation = 0
    status, _, err = run_on(none)
    assert.equal(2, status)
    assert.matches("python3 (42) obeys no policy: name OLD", err, 1, true)
  end)
end)
