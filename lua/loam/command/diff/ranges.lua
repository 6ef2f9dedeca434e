-- ranges.lua - which values an expression can have while its inputs stay in their ranges.
--
-- Arithmetic of intervals (Moore, Interval Analysis, 1966). Rounding to the nearest double keeps
-- the order of results, so the ends of a sum, a product or a quotient are exact. The result may be
-- wider than the values that occur, never narrower.

local ranges = {}

local floor, ceil, huge, min, max = math.floor, math.ceil, math.huge, math.min, math.max

local WIDER = 1e-14 -- relative error of pow that is allowed for

-- The range of anything, NaN too.
local function any() return -huge, huge, false end

-- Returns the least and greatest of four numbers; the range of anything if one is NaN.
local function of_four(a, b, c, d)
  if a ~= a or b ~= b or c ~= c or d ~= d then return any() end
  return min(a, b, c, d), max(a, b, c, d), true
end

-- By operation: function(a_lo, a_hi, b_lo, b_hi) of ranges without NaN. Returns the least and the
-- greatest result, and whether no result is NaN.
local RANGE = {
  add = function(a, b, c, d) return of_four(a + c, b + d, a + c, b + d) end,
  sub = function(a, b, c, d) return of_four(a - d, b - c, a - d, b - c) end,
  mul = function(a, b, c, d) return of_four(a * c, a * d, b * c, b * d) end,
  neg = function(a, b) return -b, -a, true end,
  floor = function(a, b) return floor(a), floor(b), true end,
  ceil = function(a, b) return ceil(a), ceil(b), true end,
  min = function(a, b, c, d) return min(a, c), min(b, d), true end,
  max = function(a, b, c, d) return max(a, c), max(b, d), true end,
}

function RANGE.abs(a, b)
  if a >= 0 then return a, b, true end
  if b <= 0 then return -b, -a, true end
  return 0, max(-a, b), true
end

function RANGE.div(a, b, c, d)
  if c <= 0 and d >= 0 then return any() end
  return of_four(a / c, a / d, b / c, b / d)
end

-- `a % k` is `a - floor(a / k) * k`, whose rounding may leave the range from 0 to k. Each of the
-- three operations has a relative error of at most 2 ^ -53, of a number that is at most |a| + k.
function RANGE.mod(a, b, c, d)
  local most = max(-a, b)
  if c ~= d or c <= 0 or c == huge or most / c >= huge then return any() end
  local wrong = most * 2 ^ -50
  return -c - wrong, 2 * c + wrong, true
end

function RANGE.pow(a, b, c, d)
  if c ~= d or c <= 0 or a < 0 then return any() end
  return a ^ c * (1 - WIDER), b ^ c * (1 + WIDER), true
end

-- Operations whose result is an integer if their operands are.
local WHOLE = { add = true, sub = true, mul = true, neg = true, abs = true, min = true, max = true,
                mod = true }

-- Returns whether all values of an expression are integers.
local function is_whole(e)
  if type(e) == "number" then return e % 1 == 0 end
  if e.op == "input" then return e.dim.kind == "whole" or e.dim.kind == "power" end
  if e.op == "floor" or e.op == "ceil" then return true end
  return WHOLE[e.op] == true and is_whole(e.a) and (not e.b or is_whole(e.b))
end

ranges.is_whole = is_whole

-- Returns the range of `a % k` if both are integers that are small enough for exact results: if
-- |a| is below 2 ^ 52, the quotient is never rounded up to the next integer.
local function whole_remainder(e, a, b, k)
  if not is_whole(e.a) or not is_whole(e.b) or max(-a, b) >= 2 ^ 52 then return nil end
  if a >= 0 and b < k then return a, b end
  return 0, k - 1
end

-- Returns the least and the greatest value of an expression, and whether it is a finite number for
-- all inputs in their ranges. Inputs are dimensions, with the range lo to hi.
function ranges.of(e)
  if type(e) == "number" then
    if e ~= e then return any() end
    return e, e, e - e == 0
  end
  if e.op == "input" then return e.dim.lo, e.dim.hi, true end
  local a, b, is_number = ranges.of(e.a)
  local c, d = 0, 0
  if e.b then
    local other
    c, d, other = ranges.of(e.b)
    is_number = is_number and other
  end
  if not is_number then return any() end
  if e.op == "mod" and c == d and c > 0 then
    local least, most = whole_remainder(e, a, b, c)
    if least then return least, most, true end
  end
  local lo, hi, known = RANGE[e.op](a, b, c, d)
  return lo, hi, known and lo - lo == 0 and hi - hi == 0
end

-- Returns whether the condition { cmp, left, right } is true, or false, for all inputs in their
-- ranges; nil if neither is known.
function ranges.holds(c)
  local a, b, left = ranges.of(c.left)
  local from, to, right = ranges.of(c.right)
  if not left or not right then return nil end
  if c.cmp == "lt" then
    if b < from then return true end
    if a >= to then return false end
  elseif c.cmp == "le" then
    if b <= from then return true end
    if a > to then return false end
  else
    if b < from or a > to then return false end
    if a == b and from == to then return true end
  end
  return nil
end

return ranges
