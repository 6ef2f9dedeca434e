-- trace_spec.lua - plans decide exactly as the policy decides in plain Lua.

local support = require("support")
local answers, tags = support.answers, support.tags

local MiB = 2 ^ 20

describe("comparing the size", function()
  it("decides each side of a threshold", function()
    local body = "if req.size < 4096 then return a end return b"
    assert.equal("a b b", answers(body, { 4095, 4096, 4097 }))
  end)

  it("knows all six comparisons, with the number on either side", function()
    for comparison, expected in pairs {
      ["req.size < 8"] = "a b b", ["req.size <= 8"] = "a a b", ["req.size > 8"] = "b b a",
      ["req.size >= 8"] = "b a a", ["req.size == 8"] = "b a b", ["req.size ~= 8"] = "a b a",
      ["8 > req.size"] = "a b b", ["8 >= req.size"] = "a a b", ["8 < req.size"] = "b b a",
      ["8 <= req.size"] = "b a a", ["8 == req.size"] = "b a b", ["8 ~= req.size"] = "a b a",
    } do
      local body = "if " .. comparison .. " then return a end return b"
      assert.equal(expected, answers(body, { 7, 8, 9 }), comparison)
    end
  end)

  it("takes fractions, infinities and NaN as Lua does", function()
    assert.equal("a b", answers("if req.size < 4.5 then return a end return b", { 4, 5 }))
    assert.equal("b b", answers("if req.size == 4.5 then return a end return b", { 4, 5 }))
    assert.equal("a a", answers("if req.size < math.huge then return a end return b", { 0,
      2 ^ 47 }))
    assert.equal("b b", answers("if req.size < -math.huge then return a end return b", { 0, 1 }))
    for _, comparison in ipairs { "<", ">", "==" } do
      local body = "if req.size " .. comparison .. " 0/0 then return a end return b"
      assert.equal("b b", answers(body, { 0, 5 }))
    end
    assert.equal("a", answers("if req.size ~= 0/0 then return a end return b", { 5 }))
  end)

  it("reaches both ends of the range", function()
    local body = "if req.size == 0 then return a end if req.size >= 2^47 then return b end return c"
    assert.equal("a c c b", answers(body, { 0, 1, 2 ^ 47 - 1, 2 ^ 47 }))
  end)

  it("leaves out what earlier conditions have settled", function()
    local class = support.class [[
      if req.size < 100 then
        if req.size < 200 then return a end
        return b
      end
      return c]]
    assert.equal(2, #class.leaves)
  end)
end)

describe("arithmetic", function()
  local function same(expression, sizes, expected)
    assert.equal(expected, answers("if " .. expression .. " then return a end return b", sizes),
      expression)
  end

  it("is Lua's, in doubles", function()
    same("req.size / 3 > 100.5", { 301, 302 }, "b a")
    same("req.size % 4096 == 0", { 0, 4095, 4096, 8192, 8193 }, "a b a a b")
    same("req.size * 3 - 1 <= 29", { 10, 11 }, "a b")
    same("-req.size < -5", { 5, 6 }, "b a")
    same("req.size ^ 2 >= 100", { 9, 10 }, "b a")
    same("(req.size + 0.1) + 0.2 == req.size + 0.3", { 0, 2 ^ 40 }, "b a")
    same("2 ^ req.size == math.huge", { 1023, 1024 }, "b a")
    same("req.size % -3 == -1", { 1, 2, 3 }, "b a b")
    same("5 - req.size > 2", { 2, 3 }, "a b")
    same("1 / req.size > 1", { 0, 1 }, "a b")
    same("-1 / (req.size * 0) < 0", { 5 }, "a")
  end)

  it("takes numeric strings as Lua does", function()
    same("req.size + '7' > 10", { 3, 4 }, "b a")
  end)

  it("knows floor, ceil, abs, min and max", function()
    same("math.floor(req.size / 1024) == 2", { 2047, 2048, 3071, 3072 }, "b a a b")
    same("math.ceil(req.size / 1024) <= 2", { 2048, 2049 }, "a b")
    same("math.abs(req.size - 100) < 3", { 97, 98, 102, 103 }, "b a a b")
    same("math.min(req.size, 50, 60) == 50", { 49, 50, 51 }, "b a a")
    same("math.max(10, req.size) > 10", { 10, 11 }, "b a")
    same("math.min(0/0, req.size) == req.size", { 5 }, "a")
  end)

  it("scales by powers of two without losing the table of sizes", function()
    local class = support.class("if req.size / loam.MiB < 4 then return a end return b", "")
    assert.equal(0, class.plan.codes)
    same("math.floor(req.size / 4096) < 3", { 12287, 12288 }, "a b")
    same("req.size * 2 + 0 >= 11", { 5, 6 }, "b a")
    same("(req.size + 15) / 16 <= 4", { 49, 50 }, "a b")
  end)

  it("compares inputs with each other", function()
    local body = "if req.size - req.live > 100 then return a end return b"
    assert.equal("a b b", answers(body, {
      { size = 201, live = 100 }, { size = 200, live = 100 }, { size = 0, live = MiB } }))
    body = "if loam.node(0).free < loam.node(1).free then return a end return b"
    assert.equal("a b", answers(body, { { node_free = { [0] = 1, 2 } }, { node_free = { [0] = 2,
      2 } } }))
  end)
end)

describe("the other inputs", function()
  it("decides by zero, which is a real boolean", function()
    local body = "local z = req.zero if z == true then return a end return b"
    assert.equal("a b", answers(body, { { zero = true }, { zero = false } }))
    assert.equal("b a", answers("return not req.zero and a or b", { { zero = true },
      { zero = false } }))
  end)

  it("decides by align, node, device and live", function()
    assert.equal("b a", answers("if req.align > 64 then return a end return b",
      { { align = 64 }, { align = 128 } }))
    assert.equal("a b", answers("if req.node == 1 then return a end return b", { { node = 1 },
      { node = 0 } }))
    assert.equal("a b", answers("if req.device < 0 then return a end return b",
      { { device = -1 }, { device = 0 } }))
    assert.equal("b a", answers("if req.live > 4096 then return a end return b",
      { { live = 4096 }, { live = 4097 } }))
  end)

  it("knows that align is a power of two", function()
    local class = support.class("if req.align > 64 and req.align < 128 then return a end return b")
    assert.equal(1, #class.leaves)
  end)

  it("says which plans read live bytes", function()
    assert.is_true(support.class("if req.live > 1 then return a end return b").reads_live)
    assert.is_true(support.class("return req.live * 3 > req.size and a or b").reads_live)
    assert.is_false(support.class("if req.size > 1 then return a end return b").reads_live)
  end)

  it("reads free memory by a constant node and by the caller's", function()
    local free = { [0] = 10, [1] = 30 }
    assert.equal("a", answers("if loam.node(0).free < 20 then return a end return b",
      { { node_free = free } }))
    local body = "if loam.node(req.node).free < 20 then return a end return b"
    assert.equal("a b a", answers(body, {
      { node = 0, node_free = free }, { node = 1, node_free = free }, { node = 5,
        node_free = free } }))
  end)
end)

describe("Lua's own constructs", function()
  it("follows and, or, not", function()
    local body = "return (req.size > 10 and req.zero or req.size == 3) and a or b"
    assert.equal("b a a b", answers(body, { 11, { size = 11, zero = true }, 3, 4 }))
  end)

  it("calls local functions, with recursion that ends", function()
    local above = "local function depth(n) if n == 0 then return 0 end return 1 + depth(n - 1) end "
      .. "local function is_big(req, k) return req.size >= k end "
    assert.equal("b a", answers("if is_big(req, depth(8)) then return a end return b", { 7, 8 },
      "", above))
  end)

  it("loops over constant tables, with break and goto", function()
    local above = "local steps = { 16, 64, 256 } local by = { a, b, c } "
    local body = "for i, k in ipairs(steps) do if req.size <= k then return by[i] end end return a"
    assert.equal("a b c a", answers(body, { 16, 17, 256, 257 }, "", above))
    body = [[
      local n = 0
      for i = 1, 10 do
        if i % 2 == 0 then goto continue end
        n = n + i
        ::continue::
      end
      if req.size < n then return a end return b]]
    assert.equal("a b", answers(body, { 24, 25 }))
  end)

  it("indexes tables by numbers of the request", function()
    local above = "local by = { [16] = b, [64] = c, [1.5] = b, x = a } "
    assert.equal("b c a a", answers("return by[req.size] or a", { 16, 64, 0, 65 }, "", above))
    assert.equal("a b", answers("return by[req.size * 2] or a", { 16, 8 }, "", above))
  end)

  it("indexes tables by the tag and its parts", function()
    local above = "local by = { [\"x.y\"] = b, x = c } "
    assert.equal("b c a", tags("return by[req.tag] or a", { "x.y", "x", "z" }, above))
    assert.equal("c c a a", tags("return by[req.tag:part(1)] or a", { "x.y", "x", "z", "" }, above))
  end)

  it("walks tables with pairs, next and #", function()
    local above = "local names = { x = true, y = true } local list = { 1, 2, 3 } "
    local body = "for name in pairs(names) do if req.tag:under(name) then return b end end "
      .. "if next(names) and #list == 3 then return c end return a"
    assert.equal("b b c", tags(body, { "x", "y.z", "q" }, above))
  end)

  it("sees a number as a number and a tag as a string", function()
    assert.equal("a", answers("return type(req.size) == 'number' and a or b", { 0 }))
    assert.equal("a", answers("return type(req.tag) == 'string' and a or b", { 0 }))
    assert.equal("a b", answers("return tonumber(req.size) < 5 and a or b", { 4, 5 }))
  end)

  it("makes chains, which are equal when their members are", function()
    local body = "if a:or_else(b) == a:or_else(b) then return a:or_else(b):or_else(c) end return c"
    assert.equal("a,b,c", answers(body, { 0 }))
  end)
end)

describe("strings of the site", function()
  it("answers under, is, glob and part", function()
    local list = { "tensor", "tensor.w", "tensors", "", "a.tensor" }
    assert.equal("a a b b b", tags("return req.tag:under('tensor') and a or b", list))
    assert.equal("a b b b b", tags("return req.tag:is('tensor') and a or b", list))
    assert.equal("a a a b b", tags("return req.tag:glob('tensor*') and a or b", list))
    assert.equal("b b b b a", tags("return req.tag:part(2) == 'tensor' and a or b", list))
  end)

  it("compares them", function()
    assert.equal("a b", tags("return req.tag == 'x' and a or b", { "x", "y" }))
    assert.equal("b a", tags("return 'x' ~= req.tag and a or b", { "x", "y" }))
    assert.equal("b a",
      tags("return req.tag == nil and a or req.tag == 5 and a or req.tag == 'y' and a or b",
      { "x", "y" }))
  end)

  it("knows file, func, module and line", function()
    support.open(support.file [[
      if req.file:glob("*.c") and req.func == "main" and req.module:is("app") and req.line > 10 then
        return a
      end
      return b]])
    local where = { tag = "", file = "x.c", func = "main", module = "app" }
    assert.equal("a", support.ask(where, { line = 11 }))
    assert.equal("b", support.ask(where, { line = 10 }))
    assert.equal("b", support.ask("", { line = 11 }))
  end)

  it("takes parts of parts, and parts that are not there as nil", function()
    assert.equal("a b", tags("return req.tag:part(2) == nil and a or b", { "x", "x.y" }))
    assert.equal("a", tags("return req.tag:part(1):part(1) == 'x' and a or b", { "x.y" }))
    assert.equal("a b", tags("return req.tag:part(2):part(1) == nil and a or b", { "x.", "x.y" }))
    assert.equal("a", tags("return req.tag:part(1):part(2) == nil and a or b", { "x.y" }))
  end)
end)
