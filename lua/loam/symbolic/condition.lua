-- condition.lua - what a comparison of symbols means, which values it leaves possible, its text.
--
-- A comparison of one input with a number is brought to the form `input < k` or `input == k` with
-- an integer k. Inputs are integers, so `size <= 4.5` becomes `size < 5`. Every other comparison
-- stays `left cmp right`; core computes it with the arithmetic of Lua.
--
-- Fields of a condition: `text`; and either `const` (its only possible outcome); or `input`, `k`,
-- `cmp` ("lt" or "eq") and `negated` (the outcome is the opposite of `input cmp k`): the simple
-- form; or `left`, `right`, `cmp` and `complex`: the computed form. A computed comparison of
-- `input % m` with a number also has `residue`, its simple form with `input % m` as the input.

local condition = {}

local floor, ceil = math.floor, math.ceil

local WHOLE = 2 ^ 52 -- integers up to here can be added without rounding

-- ---- text

local PRECEDENCE = { add = 1, sub = 1, mul = 2, div = 2, mod = 2, neg = 3, pow = 4 }
local SIGN = { add = " + ", sub = " - ", mul = " * ", div = " / ", mod = " % ", pow = " ^ " }

local function number_text(n)
  if n == floor(n) and n > -1e15 and n < 1e15 then return string.format("%d", n) end
  return string.format("%.14g", n)
end

local text

local function wrapped(e, least)
  local rank = type(e) == "table" and PRECEDENCE[e.op] or 9
  local words = text(e)
  return rank < least and "(" .. words .. ")" or words
end

---@return string the expression as a policy would write it
function text(e)
  if type(e) == "number" then return number_text(e) end
  if e.op == "input" then return e.name end
  local rank = PRECEDENCE[e.op]
  if e.op == "neg" then return "-" .. wrapped(e.a, rank + 1) end
  if rank then return wrapped(e.a, rank) .. SIGN[e.op] .. wrapped(e.b, rank + 1) end
  local second = e.b and ", " .. text(e.b) or ""
  return "math." .. e.op .. "(" .. text(e.a) .. second .. ")"
end

condition.text = text

local COMPARE = { lt = " < ", le = " <= ", eq = " == " }
local TURNED = { lt = " > ", le = " >= ", eq = " == " }

-- LuaJIT turns `req.size >= 4096` into `4096 <= req.size`. The text has the symbol on the left.
local function words(cmp, left, right)
  if type(left) == "number" then return text(right) .. TURNED[cmp] .. text(left) end
  return text(left) .. COMPARE[cmp] .. text(right)
end

-- ---- meaning

local OPERATION = {
  add = function(a, b) return a + b end,
  sub = function(a, b) return a - b end,
  mul = function(a, b) return a * b end,
  div = function(a, b) return a / b end,
  mod = function(a, b) return a % b end,
  pow = function(a, b) return a ^ b end,
  neg = function(a) return -a end,
  floor = floor, ceil = ceil, abs = math.abs, min = math.min, max = math.max,
}

local function evaluate(e, read)
  if type(e) == "number" then return e end
  if e.op == "input" then return read(e) end
  return OPERATION[e.op](evaluate(e.a, read), e.b and evaluate(e.b, read))
end

local COMPARISON = {
  lt = function(a, b) return a < b end,
  le = function(a, b) return a <= b end,
  eq = function(a, b) return a == b end,
}

-- Computes the outcome of a condition. `read(input)` gives the number of an input.
function condition.holds(c, read)
  if c.const ~= nil then return c.const end
  if c.complex then return COMPARISON[c.cmp](evaluate(c.left, read), evaluate(c.right, read)) end
  return COMPARISON[c.cmp](read(c.input), c.k) ~= c.negated
end

-- ---- the simple form

-- Multiplication by a power of two is exact unless it overflows or reaches denormal numbers.
local function is_scale(n)
  if type(n) ~= "number" or n < 2 ^ -200 or n > 2 ^ 200 then return false end
  return math.frexp(n) == 0.5
end

local function is_whole(n)
  return type(n) == "number" and n == floor(n) and n >= -WHOLE and n <= WHOLE
end

-- By operation: function(e, cmp, k) that takes the outermost operation off `e`. Returns the inner
-- expression, cmp and k of an equivalent comparison, or nothing if that would not be exact.
local PEEL = {}

function PEEL.mul(e, cmp, k)
  if is_scale(e.b) then return e.a, cmp, k / e.b end
  if is_scale(e.a) then return e.b, cmp, k / e.a end
end

function PEEL.div(e, cmp, k)
  if is_scale(e.b) then return e.a, cmp, k * e.b end
end

-- Takes `+ shift` off `e`. That is exact only where `e` is an input: its integers are below 2^52,
-- so the sum is not rounded.
local function shifted(e, shift, cmp, k)
  if type(e) ~= "table" or e.op ~= "input" or not is_whole(shift) then return nil end
  if cmp == "lt" then k = ceil(k) elseif cmp == "le" then k = floor(k) end
  if is_whole(k) then return e, cmp, k - shift end
end

function PEEL.add(e, cmp, k)
  if type(e.b) == "number" then return shifted(e.a, e.b, cmp, k) end
  return shifted(e.b, e.a, cmp, k)
end

function PEEL.sub(e, cmp, k)
  if type(e.b) == "number" then return shifted(e.a, -e.b, cmp, k) end
end

function PEEL.floor(e, cmp, k)
  if cmp == "lt" then return e.a, "lt", ceil(k) end
  if cmp == "le" then return e.a, "lt", floor(k) + 1 end
end

function PEEL.ceil(e, cmp, k)
  if cmp == "lt" then return e.a, "le", ceil(k) - 1 end
  if cmp == "le" then return e.a, "le", floor(k) end
end

local function peel(e, cmp, k)
  while e.op ~= "input" do
    -- The functions of PEEL are exact only for numbers that are neither huge nor tiny.
    if k ~= 0 and (k ~= k or math.abs(k) > 2 ^ 100 or math.abs(k) < 2 ^ -100) then return nil end
    local step = PEEL[e.op]
    if not step then return nil end
    e, cmp, k = step(e, cmp, k)
    if type(e) ~= "table" then return nil end
  end
  return e, cmp, k
end

local function constant(outcome) return { const = outcome } end

-- The condition `input cmp k`, where the input is an integer from input.least to input.most.
local function simple(input, cmp, k)
  if cmp == "eq" then
    if k ~= floor(k) or k < input.least or k > input.most then return constant(false) end
    return { input = input, cmp = "eq", k = k, negated = false }
  end
  if cmp == "le" then
    if k >= input.most then return constant(true) end
    if k < input.least then return constant(false) end
    k = floor(k) + 1
  end
  if k > input.most then return constant(true) end
  if k <= input.least then return constant(false) end
  return { input = input, cmp = "lt", k = ceil(k), negated = false }
end

local function against_number(e, cmp, k)
  if k ~= k then return constant(false) end
  local input, simple_cmp, bound = peel(e, cmp, k)
  return input and simple(input, simple_cmp, bound)
end

-- `k < e` becomes `not (e <= k)`. The two are equal because an input is never NaN.
local OPPOSITE = { lt = "le", le = "lt" }

local function turned(cmp, k, e)
  if cmp == "eq" or k ~= k then return against_number(e, cmp, k) end
  local c = against_number(e, OPPOSITE[cmp], k)
  if not c then return nil end
  if c.const ~= nil then return constant(not c.const) end
  c.negated = true
  return c
end

-- Whether `e` is `input % m` with a whole number m. It is a whole number from 0 to m - 1, since
-- inputs are below 2^53, so it can be narrowed as an input. Gives it the fields for that.
local function is_residue(e)
  if type(e) ~= "table" or e.op ~= "mod" or not is_whole(e.b) or e.b < 1 then return false end
  if e.a.op ~= "input" then return false end
  if not e.holes then
    e.least, e.most, e.low, e.high, e.holes = 0, e.b - 1, 0, e.b - 1, {}
  end
  return true
end

-- Makes the simple form of a comparison of `input % m` with a number, by which paths are narrowed;
-- nil if it is another comparison.
local function residue(cmp, left, right)
  local is_turned = type(left) == "number"
  local e, k = left, right
  if is_turned then e, k = right, left end
  if type(k) ~= "number" or k ~= k or not is_residue(e) then return nil end
  if not is_turned or cmp == "eq" then return simple(e, cmp, k) end
  local c = simple(e, OPPOSITE[cmp], k)
  if c.const ~= nil then return constant(not c.const) end
  c.negated = true
  return c
end

---@param cmp "lt"|"le"|"eq"
function condition.make(cmp, left, right)
  local c
  if type(right) == "number" and type(left) == "table" then
    c = against_number(left, cmp, right)
  elseif type(left) == "number" and type(right) == "table" then
    c = turned(cmp, left, right)
  end
  if not c then
    local narrowed = residue(cmp, left, right)
    c = { complex = true, cmp = cmp, left = left, right = right, residue = narrowed }
    if narrowed and narrowed.const ~= nil then c = narrowed end
  end
  c.text = words(cmp, left, right)
  return c
end

-- ---- the values of an input that the present path leaves possible: low to high, without holes

local function is_power(n)
  return n >= 1 and math.frexp(n) == 0.5
end

local function is_open(input, k)
  return k >= input.low and k <= input.high and not input.holes[k]
    and (not input.power or is_power(k))
end

---@return boolean, boolean whether a simple condition can still be true, and can still be false
function condition.possible(c)
  local input, k = c.input, c.k
  local yes, no
  if c.cmp == "lt" then
    yes, no = input.low < k, input.high >= k
  else
    yes, no = is_open(input, k), input.low ~= k or input.high ~= k
  end
  if c.negated then return no, yes end
  return yes, no
end

local function low_of(input) return input.low end

-- Like condition.possible, for a computed condition with a residue.
function condition.possible_residue(c)
  local input = c.residue.input.a
  if input.low ~= input.high then return condition.possible(c.residue) end
  local outcome = condition.holds(c, low_of)
  return outcome, not outcome
end

-- Returns the possible value of the input that is nearest to `k`: at or above it where `step` is 1,
-- at or below it where `step` is -1.
local function settle(input, k, step)
  if input.power then
    local mantissa, exponent = math.frexp(k)
    if mantissa ~= 0.5 then k = step > 0 and 2 ^ exponent or 2 ^ (exponent - 1) end
    while input.holes[k] do k = step > 0 and k * 2 or k / 2 end
    return k
  end
  while input.holes[k] do k = k + step end
  return k
end

-- Narrows the possible values of the input to those that give this outcome. Calls
-- `save(table, key)` before it changes a field.
function condition.apply(c, outcome, save)
  local input, k = c.input, c.k
  local holds = outcome ~= c.negated
  save(input, "low")
  save(input, "high")
  if c.cmp == "lt" then
    if holds then
      input.high = settle(input, math.min(input.high, k - 1), -1)
    else
      input.low = settle(input, math.max(input.low, k), 1)
    end
  elseif holds then
    input.low, input.high = k, k
  else
    save(input.holes, k)
    input.holes[k] = true
    input.low, input.high = settle(input, input.low, 1), settle(input, input.high, -1)
  end
end

condition.evaluate = evaluate

return condition
