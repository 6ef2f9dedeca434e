-- class_spec.lua - sites that a policy cannot distinguish share a plan, and no problem goes
-- unreported.

local core = require("support").core
local support = require("support")
local policy = require("loam.compiler.policy")

local function plans(body, tags, above)
  assert(support.open(support.file(body, above)))
  local seen, n, before = {}, 0, #core.steps
  for _, tag in ipairs(tags) do
    local class = policy.class { tag = tag }
    if not seen[class] then n = n + 1 end
    seen[class] = true
  end
  local traced = 0
  for i = before + 1, #core.steps do
    if core.steps[i]:find("^tracing") then traced = traced + 1 end
  end
  assert.equal(n, traced)
  return n
end

local MANY = {}
for i = 1, 500 do MANY[i] = "group" .. i % 5 .. ".x" .. i end

describe("a class of tags", function()
  it("is traced once", function()
    assert.equal(1, plans("return a", MANY))
    assert.equal(2, plans("return req.tag:under('group1') and a or b", MANY))
    assert.equal(2, plans("return req.tag == 'group1.x1' and a or b", MANY))
    assert.equal(3, plans("if req.tag:part(1) == 'group1' then return a end "
      .. "return req.tag:glob('*.x2') and a or b", MANY))
  end)

  it("is told by the key found in a table, not by the whole tag", function()
    assert.equal(3, plans("return by[req.tag:part(1)] or c", MANY,
      "local by = { group1 = a, group2 = b } "))
  end)

  it("asks only what earlier answers lead to", function()
    assert.equal(3, plans("if req.tag:under('group1') then return a end "
      .. "return req.size > 4 and req.tag:under('group2') and b or c", MANY))
  end)
end)

describe("equal plans", function()
  it("of different classes are one image", function()
    support.open(support.file("if req.tag:under('x') then return a end return a"))
    assert.equal(policy.class { tag = "x" }.plan, policy.class { tag = "y" }.plan)
  end)
end)

describe("what tracing would miss silently", function()
  local function same_as_lua(body, above)
    local class = support.class(body, "x", above)
    assert.is_nil(class.errors and class.errors[1].reason)
  end

  it("is indexing by a symbol", function()
    same_as_lua("return by[req.size] or b", "local by = { [16] = a } ")
    same_as_lua("return by.deep[1][req.size] or b", "local by = { deep = { { [16] = a } } } ")
    same_as_lua("return get()[req.size] or b",
      "local by = { [16] = a } local function get() return by end ")
  end)

  it("is type, tonumber and equality", function()
    same_as_lua("return type(req.size) == 'cdata' and a or b")
    same_as_lua("return tonumber(req.size) == 16 and a or b")
    same_as_lua("return req.size == req.size and a or b")
    same_as_lua("return req.tag == 'x' and a or b")
    same_as_lua("return 'x' == req.tag and a or b")
  end)

  it("is a hole that the comparison with plain Lua finds", function()
    local sandbox = require("loam.language.sandbox")
    local new = sandbox.new
    local function leak(value) return type(value) == "number" end
    sandbox.new = function(loam)
      local env = new(loam)
      rawset(env, "leak", leak)
      return env
    end
    local d = support.refusal("return leak(req.size) and a or b", "x")
    sandbox.new = new
    assert.equal("mismatch", d.class)
    assert.matches("the compiled plan gives 'b' and plain Lua 'a' for size", d.reason)
  end)
end)

describe("the sandbox", function()
  it("leaves the strings of trusted code alone", function()
    support.refusal("return req.tag:find('x')", "x")
    support.refusal("error('x')", "x")
    assert.equal("b", ("abc"):match("b"))
  end)

  it("gives a policy its own strings only", function()
    assert.equal("name", support.refusal("return ('x'):gsub('x', 'y') and a").class)
    assert.equal("field", support.refusal("return ('x').y and a").class)
    assert.equal("type", support.refusal("return ('x'):rep(1e9) and a").class)
  end)
end)
