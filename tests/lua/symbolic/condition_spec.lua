-- condition_spec.lua - the simplified form of a condition has the same result as the written form.

local support = require("support")
local condition = require("loam.symbolic.condition")

local SIZE, ALIGN = support.input("req.size"), support.input("req.align")

local function op(name, a, b) return { op = name, a = a, b = b } end

local function holds(c, size)
  return condition.holds(c, function() return size end)
end

local COMPARE = {
  lt = function(a, b) return a < b end,
  le = function(a, b) return a <= b end,
  eq = function(a, b) return a == b end,
}

local function same(wanted, c, size)
  if holds(c, size) ~= wanted then error(("%s at %d is not %s"):format(c.text, size,
    tostring(wanted))) end
end

-- Compares `e cmp k`, and `k cmp e`, with plain arithmetic at many sizes.
local function check(e, plain, k)
  for cmp, compare in pairs(COMPARE) do
    local right, left = condition.make(cmp, e, k), condition.make(cmp, k, e)
    for power = 0, 46 do
      for d = -2, 2 do
        local size = math.max(0, 2 ^ power + d)
        same(compare(plain(size), k), right, size)
        same(compare(k, plain(size)), left, size)
      end
    end
  end
end

local NUMBERS = { 0, 1, -1, 2, 3, 7.5, 4096, 4095.5, 2 ^ 46, 2 ^ 60, 1e300, -1e300, 1 / 0, -1 / 0,
  0 / 0,
                  1e-300, 0.1, 2 ^ 31 + 1 }

describe("a condition", function()
  it("on the size means the same in its simple form", function()
    for _, k in ipairs(NUMBERS) do check(SIZE, function(s) return s end, k) end
  end)

  it("scaled, shifted and rounded means the same", function()
    for _, k in ipairs(NUMBERS) do
      check(op("div", SIZE, 4096), function(s) return s / 4096 end, k)
      check(op("mul", SIZE, 0.25), function(s) return s * 0.25 end, k)
      check(op("mul", 8, SIZE), function(s) return 8 * s end, k)
      check(op("add", SIZE, 15), function(s) return s + 15 end, k)
      check(op("sub", SIZE, 4096), function(s) return s - 4096 end, k)
      check(op("floor", op("div", SIZE, 64)), function(s) return math.floor(s / 64) end, k)
      check(op("ceil", op("div", op("add", SIZE, 1), 64)), function(s)
        return math.ceil((s + 1) / 64)
      end, k)
      check(op("mul", op("floor", op("div", SIZE, 64)), 2), function(s)
        return math.floor(s / 64) * 2
      end, k)
    end
  end)

  it("is simple where that is exact, else computed", function()
    assert.equal(4096 * 3, condition.make("lt", op("div", SIZE, 4096), 3).k)
    assert.equal(SIZE, condition.make("le", op("floor", op("div", SIZE, 2)), 3).input)
    assert.is_true(condition.make("lt", op("div", SIZE, 3), 3).complex)
    assert.is_true(condition.make("lt", op("add", SIZE, 0.5), 3).complex)
    assert.is_true(condition.make("lt", SIZE, op("mul", SIZE, 2)).complex)
  end)

  it("reads as it was written", function()
    local function words(cmp, left, right) return condition.make(cmp, left, right).text end
    assert.equal("req.size < 4096", words("lt", SIZE, 4096))
    assert.equal("req.size >= 4096", words("le", 4096, SIZE))
    assert.equal("req.size > 4.5", words("lt", 4.5, SIZE))
    assert.equal("(req.size - 1) * 2 == 3", words("eq", op("mul", op("sub", SIZE, 1), 2), 3))
    assert.equal("req.size - (1 - req.align) < 0", words("lt", op("sub", SIZE, op("sub", 1,
      ALIGN)), 0))
    assert.equal("math.max(-req.size, 1) < 0", words("lt", op("max", op("neg", SIZE), 1), 0))
  end)
end)

describe("bounds", function()
  local undo

  local function save(t, key)
    local value = t[key]
    undo[#undo + 1] = function() t[key] = value end
  end

  before_each(function() undo = {} end)
  after_each(function()
    for i = #undo, 1, -1 do undo[i]() end
  end)

  local function settle(input, cmp, k, outcome)
    condition.apply(condition.make(cmp, input, k), outcome, save)
  end

  local function possible(input, cmp, k)
    return { condition.possible(condition.make(cmp, input, k)) }
  end

  it("narrow by each outcome", function()
    settle(SIZE, "lt", 100, true)
    settle(SIZE, "lt", 50, false)
    assert.same({ 50, 99 }, { SIZE.low, SIZE.high })
    assert.same({ true, false }, possible(SIZE, "lt", 100))
    assert.same({ false, true }, possible(SIZE, "eq", 49))
    assert.same({ true, true }, possible(SIZE, "eq", 50))
    settle(SIZE, "eq", 50, false)
    assert.equal(51, SIZE.low)
  end)

  it("know the values that are left out", function()
    settle(SIZE, "lt", 3, true)
    settle(SIZE, "eq", 1, false)
    assert.same({ false, true }, possible(SIZE, "eq", 1))
    settle(SIZE, "eq", 0, false)
    assert.same({ true, false }, possible(SIZE, "eq", 2))
  end)

  it("go from one power of two to the next", function()
    settle(ALIGN, "lt", 100, true)
    assert.equal(64, ALIGN.high)
    settle(ALIGN, "lt", 33, false)
    assert.equal(64, ALIGN.low)
    assert.same({ true, false }, possible(ALIGN, "eq", 64))
    assert.same({ false, true }, possible(ALIGN, "eq", 65))
  end)
end)
