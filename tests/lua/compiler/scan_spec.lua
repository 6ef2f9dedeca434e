-- scan_spec.lua - the facts that the bytecode of pick shows before it runs.

local diag = require("loam.report.diag")
local scan = require("loam.compiler.scan")

-- Makes an environment that refuses unknown words, as the sandbox's environment does.
local function strict(t)
  return setmetatable(t, { __index = function(_, name)
    diag.throw { class = "global", reason = "'" .. name .. "' is not defined" }
  end })
end

local function scanned(source)
  local env = strict {
    loam = strict { MiB = 2 ^ 20 }, math = strict { floor = math.floor }, own = { a = 1 },
  }
  local chunk = assert(loadstring(source, "=policy"))
  return scan.check(setfenv(chunk, env)(), env)
end

local function classes(source)
  local out = {}
  for i, d in ipairs(scanned(source)) do out[i] = d.line .. " " .. d.class end
  return out
end

describe("scan.check", function()
  it("has nothing to say about an ordinary policy", function()
    assert.same({}, classes [[
local limits = { a = 1, b = { 2, 3 } }
local function big(req) return req.size > limits.a end
return function(req)
  local n = 0
  for i = 1, 3 do n = n + i end
  if big(req) and n > 2 then return own.missing end
  return math.floor(3.5) + loam.MiB
end]])
  end)

  it("finds tables built in pick, once, fields and all", function()
    assert.same({ "2 table", "5 table" }, classes [[
return function(req)
  local t = {
    a = req.size, b = req.align,
  }
  local u = {}
  u.x = 1
  return t
end]])
  end)

  it("finds writes to what outlives the request", function()
    assert.same({ "4 write", "5 write", "6 write", "7 write" }, classes [[
local n, list = 0, {}
return function(req)
  local mine = 1
  n = n + 1
  list[1] = req.size
  list.x = mine
  count = n
  mine = 2
end]])
  end)

  it("allows a nested function the locals of pick", function()
    assert.same({ "6 write" }, classes [[
local n = 0
return function(req)
  local sum = 0
  local function add(x)
    sum = sum + x
    n = n + 1
  end
  add(req.size)
  return sum
end]])
  end)

  it("reads the functions that pick can reach, and no others", function()
    assert.same({ "2 write", "3 write" }, classes [[
local n = 0
local function helper() n = 1 end
local tools = { deep = { function() n = 2 end } }
local function unused() n = 3 end
return function(req) helper(req) tools.deep[1](req) end]])
  end)

  it("finds words that are not there on paths that are never taken", function()
    assert.same({ "3 global", "4 field", "5 global", "5 global" }, classes [[
return function(req)
  if req.size < 0 then
    prnt(1)
    if req.szie > 1 then return own.x end
    return math.foor(1), other.size
  end
end]])
  end)

  it("says what a misspelt field of req was meant to be", function()
    local found = scanned "return function(r) return r.aling end"
    assert.equal("did you mean 'align'?", found[1].suggestion)
  end)

  it("does not take another table for req", function()
    assert.same({}, classes "local t = {} return function(r) r = t; return r.anything end")
  end)

  it("knows a library's field only where it is read at once", function()
    assert.same({}, classes [[
return function(r) local t = r.size > 1 and loam; return own.a, t.size end]])
    assert.same({}, classes [[
return function(r)
  local t = math
  if r.size > 1 then t = own end
  return t.a
end]])
  end)

  it("gathers the numbers that pick and its tables hold", function()
    local _, constants = scanned [[
local limits = { 11, x = 2.5, [4096] = { 1e9 } }
local function helper(n) return n > 77777 end
return function(req)
  local function nested() return req.size - 123 end
  return limits[7], helper(req.size % -5), 1e300, nested, 1e309
end]]
    local has = {}
    for _, n in ipairs(constants) do has[n] = true end
    for _, n in ipairs { 11, 2.5, 4096, 1e9, 77777, 123, 7, -5, 1e300 } do
      assert.is_true(has[n], n)
    end
    assert.is_nil(has[1e309])
  end)

  it("ends on tables that hold each other", function()
    assert.same({}, classes "local a, b = {}, {} a.b, b.a = b, a return function(req) return a end")
  end)

  it("lets the core's budget error through", function()
    local env = setmetatable({}, { __index = function() error("loam-budget: x", 0) end })
    local pick = assert(loadstring("return function() return anything end", "=policy"))()
    assert.has_error(function() scan.check(pick, env) end, "loam-budget: x")
  end)
end)

describe("scan.has_line_for_each_question", function()
  it("is false for two instructions on one line that may ask one question", function()
    for text, is_true in pairs {
      ["return f(1) + g(2)\n"] = false,
      ["return f(1)\n + g(2)\n"] = true,
      ["return function() return t == 'a' or t == 'b' end\n"] = false,
      ["return function() return t == 'a'\n or t == 'b' end\n"] = true,
      ["return t[a] or t[b]\n"] = false,
      ["for x in f(1) do return x == t[x] end\n"] = true,
    } do
      assert.equal(is_true, scan.has_line_for_each_question(assert(loadstring(text))), text)
    end
  end)
end)
