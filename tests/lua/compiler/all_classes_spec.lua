-- all_classes_spec.lua - a load finds every class of sites, and core's tree leads each site to it.

local core = require("support").core
local support = require("support")
local policy = require("loam.compiler.policy")

-- Compiles a policy with this body for all classes. Returns their number, or nil and the faults.
local function classes(body, above)
  assert(support.open(support.file(body, above)))
  local errors = policy.compile_all()
  if #errors > 0 then return nil, errors end
  return #policy.classes()
end

local function chain_of_unders(n)
  local lines = {}
  for i = 1, n do
    lines[i] = ("if req.tag:under('g%d.part%d') then return %s end"):format(i % 17, i,
      i % 2 == 0 and "a" or "b")
  end
  return table.concat(lines, " ") .. " return c"
end

describe("the classes of a policy", function()
  it("are one without questions, and one more for each of 200 tags", function()
    assert.equal(1, classes("return req.size > 4 and a or b"))
    assert.equal(201, classes(chain_of_unders(200)))
  end)

  it("are mostly found without a search, whose time grows with the number of questions", function()
    local automaton = require("loam.compiler.automaton")
    local search, searches = automaton.search, 0
    automaton.search = function(...)
      searches = searches + 1
      return search(...)
    end
    assert.equal(301, classes(chain_of_unders(300)))
    assert.equal(42, classes("for i = 1, 40 do if req.tag:under('app.p' .. i) and req.size > i "
      .. "then return a end end return req.tag:is('app') and b or c"))
    assert.equal(42, classes("for i = 1, 40 do if req.tag:glob('app.p' .. i .. '-*') and req.size "
      .. "> i then return a end end return req.tag:is('app.p') and b or c"))
    assert.equal(101, classes("for i = 1, 100 do if req.tag:glob('app' .. i .. '.*.?') then "
      .. "return i % 2 == 0 and a or b end end return c"))
    assert.equal(4, classes("if req.tag:part(3) == 'z' then return a end "
      .. "return req.tag:part(3) and b or by[req.func] or c", "local by = { k = a } "))
    assert.equal(16, classes("local f = req.tag:glob('*f-*') local g = req.tag:glob('*g-*') "
      .. "local h = req.tag:glob('*h-*') local i = req.tag:glob('*i-*') "
      .. "return req.size > (f and 1 or 0) + (g and 2 or 0) + (h and 4 or 0) + (i and 8 or 0) "
      .. "and a or b"))
    automaton.search = search
    assert.equal(0, searches)
  end)

  it("leave out answers that no tag gives", function()
    assert.equal(3, classes("if req.tag:under('a.b') then return a end "
      .. "if req.tag:under('a') then return req.tag:is('a.b') and c or b end return c"))
    assert.equal(2, classes("if req.tag:glob('*x*') then return req.tag == '' and a or b end "
      .. "return c"))
    assert.equal(1, classes("return req.tag:is('" .. ("a"):rep(256) .. "') and a or b"))
  end)

  it("join the keys of a table that have one value", function()
    assert.equal(4, classes("return by[req.tag:part(2)] or c",
      "local by = { k1 = a, k2 = b, k3 = a } "))
  end)

  it("are found for a part that is the key 'false'", function()
    assert.equal(5, classes("local has_more = req.tag:part(2) ~= nil\n"
      .. "return by[req.tag:part(1) or ''] and has_more and a or b",
      "local by = { ['false'] = 1 } "))
    local _, find = core.class_tree((policy.tree()))
    assert.are_not.equal(find { tag = "x.y" }, find { tag = "false.y" })
  end)

  it("tell the keys of 0 and -0 apart", function()
    assert.equal(3, classes("return 1 / (by[req.tag] or 1) < 0 and a or b",
      "local by = { x = 0, y = -0.0 } "))
    assert.equal("b", support.ask("x", 1))
    assert.equal("a", support.ask("y", 1))
  end)

  it("are of all strings of a site", function()
    assert.equal(4, classes("return req.tag:under('x') and (req.file:glob('*.c') and a or b) "
      .. "or req.func == 'main' and a or c"))
  end)

  it("are not told apart by the line, which the plan reads", function()
    assert.equal(1, classes("return req.line == 7 and a or b"))
    assert.equal("b", support.ask("", { line = 6 }))
    assert.equal("a", support.ask("", { line = 7 }))
  end)

  it("are refused where they are too many", function()
    local keys = {}
    for i = 1, 4200 do keys[i] = ("k%d = 'v%d'"):format(i, i) end
    local _, errors = classes("return by[req.tag] and a or b",
      "local by = { " .. table.concat(keys, ", ") .. " } ")
    assert.equal("classes", errors[1].class)
    assert.matches("more than 4096 classes of tags", errors[1].reason)
  end)

  -- Returns `n` lines with a pattern in each; every tag may match any of the patterns.
  local function globs(n, line)
    local lines = {}
    for i = 1, n do lines[i] = line:gsub("PATTERN", ("'*%c-*'"):format(96 + i)):gsub("SIZE", i) end
    return table.concat(lines, "\n")
  end

  it("are few if pick goes on alike after different answers to its questions", function()
    local join = globs(20, "if req.tag:glob(PATTERN) and req.size > SIZE then return a end")
    assert.equal(21, classes(join .. " return b"))
    assert.equal("a", support.ask("t-", 21))
    assert.equal("b", support.ask("t-", 20))
    assert.equal("a", support.ask("t-b-", 3))
    assert.equal("b", support.ask("t-b-", 2))
    local count = "local n = 0\n" .. globs(20, "if req.tag:glob(PATTERN) then n = n + 1 end")
    assert.equal(2, classes(count .. " return n > 2 and a or b"))
    assert.equal("b", support.ask("a-b-", 1))
    assert.equal("a", support.ask("a-b-t-", 1))
    assert.equal(3, classes("local use = c\n"
      .. globs(20, "if req.tag:glob(PATTERN) then use = SIZE % 2 == 0 and a or b end")
      .. " return use"))
    assert.equal("a", support.ask("s-t-", 1))
    assert.equal("c", support.ask("none", 1))
  end)

  it("are told apart by an invariant too, and by a question that pick asks twice", function()
    local count = "local n = 0\n" .. globs(12, "if req.tag:glob(PATTERN) then n = n + 1 end")
    assert(support.open(support.file(count .. " return n > 2 and a or b", "",
      "always = { none = function(req, got) return got.name ~= 'a' "
        .. "or not req.tag:glob('*q*') end }")))
    assert.matches("\"none\" does not hold for strategy 'a'", policy.compile_all()[1].reason)
    assert.equal(3, classes(count .. " if req.tag:glob('*a-*') then return c end "
      .. "return n > 2 and a or b"))
    assert.equal("c", support.ask("a-", 1))
    assert.equal("b", support.ask("b-c-", 1))
    assert.equal("a", support.ask("b-c-d-", 1))
  end)

  it("are compared with plain Lua at other tags where they were joined", function()
    local path_graph = require("loam.compiler.path_graph")
    local run = path_graph.run
    path_graph.run = function() return { leaf = "a class with all tags" } end
    local _, errors = classes("local n = 0\n"
      .. globs(8, "if req.tag:glob(PATTERN) then n = n + 1 end") .. " return n > 4 and a or b")
    path_graph.run = run
    assert.equal("mismatch", errors[1].class)
    assert.matches("^tags were joined that pick does not treat alike: the compiled plan gives 'b' "
      .. "and plain Lua 'a' for size %d+", errors[1].reason)
  end)

  it("are refused early where answers lead to very many decisions, with the questions", function()
    local sums = "local n = 0\n" .. globs(20, "if req.tag:glob(PATTERN) then n = n + 2^SIZE end")
    local _, errors = classes(sums .. " return req.size > n and a or b")
    assert.equal("classes", errors[1].class)
    assert.matches("it asks req.tag:glob%(\"%*a%-%*\"%), .* and 17 more", errors[1].reason)
    assert.is_true(#policy.classes() < 1000)
  end)

  it("are all shown to be refused, not the first alone", function()
    local _, errors = classes("if req.tag:under('x') then return nil end\n"
      .. "if req.tag:under('y') then return 5 end return a")
    assert.equal(2, #errors)
  end)
end)

describe("the tree of all classes", function()
  it("has no node without questions", function()
    classes("return req.size > 4 and a or b")
    local tree = core.class_tree((policy.tree()))
    assert.equal(0, tree.nodes)
  end)

  it("leaves out questions whose answers lead to one plan", function()
    classes("if req.tag:under('x') then return a end if req.tag:under('y') then return b end "
      .. "return b")
    local tree = core.class_tree((policy.tree()))
    assert.equal(1, tree.nodes)
  end)

  it("does not take the key 'false' for no key", function()
    classes("if req.func == 'f' then return by[req.tag] and a or b end "
      .. "return by[req.tag] and b or a", "local by = { ['false'] = 1 } ")
    local _, find = core.class_tree((policy.tree()))
    local key, none = find { tag = "false", func = "f" }, find { tag = "x", func = "f" }
    assert.are_not.equal(key, none)
    assert.equal(key, find { tag = "x", func = "g" })
    assert.equal(none, find { tag = "false", func = "g" })
  end)

  it("asks whether there is a part", function()
    classes("return req.tag:part(3) and a or b")
    local _, find = core.class_tree((policy.tree()))
    assert.equal(find { tag = "x" }, find { tag = "x.y" })
    assert.are_not.equal(find { tag = "x.y" }, find { tag = "x.y.z" })
  end)

  it("leads keys to their plans and all other strings elsewhere", function()
    classes("return by[req.tag:part(2)] or c", "local by = { k1 = a, k2 = b, k3 = a } ")
    local bytes, plans = policy.tree()
    local _, find = core.class_tree(bytes)
    for tag, same_as in pairs { ["t.k3"] = "t.k1", ["t.k4"] = "", ["k1"] = "", ["t.k"] = "" } do
      assert.equal(find { tag = same_as }, find { tag = tag }, tag)
    end
    assert.are_not.equal(find { tag = "t.k1" }, find { tag = "t.k2" })
    assert.equal(3, #plans)
  end)
end)
