-- diag_spec.lua - the text of diagnostics.

local diag = require("loam.report.diag")

local function caught(source)
  local f, message = loadstring(source, "=policy")
  if not f then return diag.from_error(message) end
  local _, value = pcall(f)
  return diag.from_error(value)
end

describe("diag.render", function()
  local source = { "local a", "if req.size >= 4096 then", "\treturn b\27[31m" }

  it("shows place, class, reason, source, path and hint", function()
    local d = diag.new {
      line = 3, class = "name", reason = "there is no b", suggestion = "did you mean 'a'?",
      led = { { line = 2, condition = "req.size >= 4096", holds = true },
              { line = 2, condition = "req.zero", holds = false } },
    }
    assert.equal(table.concat({
      "prod.lua:3: name: there is no b",
      "    3 |   return b\\027[31m",
      "  led here: `req.size >= 4096` on line 2 was true",
      "            `req.zero` on line 2 was false",
      "  hint: did you mean 'a'?",
    }, "\n"), diag.render(d, "prod.lua", source))
  end)

  it("needs neither a line nor the source", function()
    assert.equal("prod.lua: io: no such file", diag.render(
      diag.new { class = "io", reason = "no such file" }, "prod.lua"))
  end)

  it("counts what it does not show", function()
    local list = {}
    for i = 1, 25 do list[i] = diag.new { line = i, class = "x", reason = "y" } end
    local words = diag.render(list, "p.lua")
    assert.matches("\nand 5 more$", words)
  end)

  it("cuts long lines", function()
    local d = diag.new { line = 1, class = "x", reason = ("y"):rep(1e6) }
    assert.is_true(#diag.render(d, "p.lua", { ("z"):rep(1e6) }) < 1000)
  end)
end)

describe("diag.object", function()
  it("has the keys of the JSON contract", function()
    local d = diag.new { line = 1, class = "c", reason = "r", suggestion = "s",
                         led = { { line = 1, condition = "req.zero", holds = true } } }
    assert.same({ file = "p.lua", line = 1, class = "c", reason = "r", source = "x = 1",
                  suggestion = "s", led = { { line = 1, condition = "req.zero", holds = true } } },
      diag.object(d, "p.lua", { "x = 1  " }))
  end)

  it("leaves out what is not known", function()
    assert.same({ file = "p.lua", class = "c", reason = "r" },
      diag.object(diag.new { class = "c", reason = "r" }, "p.lua", {}))
  end)
end)

describe("diag.suggest", function()
  local known = { "size", "align", "zero", "interleave" }

  it("finds the word that was meant", function()
    assert.equal("size", diag.suggest("szie", known))
    assert.equal("align", diag.suggest("aling", known))
    assert.equal("interleave", diag.suggest("INTERLEAVED", known))
  end)

  it("does not guess", function()
    assert.is_nil(diag.suggest("banana", known))
    assert.is_nil(diag.suggest("", known))
    assert.is_nil(diag.suggest(("x"):rep(1e6), known))
  end)
end)

describe("diag.from_error", function()
  it("keeps diagnostics as they are", function()
    local d = diag.new { class = "x", reason = "y" }
    assert.equal(d, diag.from_error(d))
  end)

  it("never asks an error value for its text", function()
    local trap = setmetatable({}, { __tostring = function() error("called") end })
    assert.matches("value is a table", diag.from_error(trap).reason)
  end)

  it("tells loam's own faults apart", function()
    assert.equal("internal", diag.from_error("loam/trace.lua:12: oops").class)
  end)

  it("knows the core's budget errors", function()
    assert.is_true(diag.is_budget("loam-budget: tracing tag 'x' took more than 200 ms"))
    assert.is_false(diag.is_budget("policy:1: loam-budget: no"))
    assert.is_false(diag.is_budget({}))
  end)

  for source, expected in pairs {
    ["for i = 1, {} do end"] = { "loop", "limit of a 'for' loop is not a plain number" },
    ["local limits = {}\nreturn limits.a.b"] = { "nil", "'a' is a nil value" },
    ["allocate()"] = { "name", "no function 'allocate'" },
    ["return 1 < nil"] = { "compare", "comparing number with nil" },
    ["return nil + 1"] = { "arithmetic", "a nil value is used as a number" },
    ["return 'a' .. {}"] = { "text", "a table value is used as a string" },
    ["if x = 1 then end"] = { "syntax", "'then' expected near '='" },
    ["return {"] = { "syntax", "near '<eof>'" },
    ["error('mine')"] = { "error", "^mine$" },
    ["local function f() return f() + 1 end f()"] = { "recursion", "without end" },
    ["string.rep('x', 0/0, {})"] = { "argument", "argument 3 of rep" },
  } do
    it("explains " .. source:gsub("\n", "; "), function()
      local d = caught(source)
      assert.equal(expected[1], d.class)
      assert.matches(expected[2], d.reason)
      -- With its compiler off, LuaJIT gives no line for a stack overflow.
      if expected[1] ~= "recursion" then assert.is_number(d.line) end
    end)
  end
end)
