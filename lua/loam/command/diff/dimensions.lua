-- dimensions.lua - what the plans of two policies compare with constants: the inputs of a request,
-- sums and other expressions of them, and conditions that are true or false.
--
-- A dimension has ordered values, and its present range is `lo` to `hi`. A box is a range of every
-- dimension. Kinds of dimensions:
--   whole     an input, whose values are integers
--   power     an input, whose values are powers of two
--   real      an expression that is a finite number for every request: `req.size / 3`
--   integer   a real one whose values are integers below 2 ^ 52: `req.size % 4096`
--   computed  any other condition: 0 is false, 1 is true
-- The values of the first two kinds are independent of each other. A dimension of another kind
-- depends on inputs, so a box may hold no request: witness.lua looks for one.

local ranges = require("loam.command.diff.ranges")

local dimensions = {}

---@class loam.Dimension
---@field kind "whole"|"power"|"real"|"integer"|"computed"
---@field name string as a policy writes it
---@field least number
---@field most number
---@field lo number
---@field hi number
---@field default number|nil of an input: its value in a plain request
---@field field string|nil of an input: its name in a query `confirm`
---@field expression any of a real or integer dimension
---@field condition table|nil of a computed dimension: { cmp, left, right }

-- ---- neighbours of values

local SMALLEST = 2 ^ -1074

---@return number the least double above `x`
local function succ(x)
  if x == 0 then return SMALLEST end
  local mantissa, exponent = math.frexp(x)
  local ulp = 2 ^ (exponent - (mantissa == -0.5 and 54 or 53))
  return x + math.max(ulp, SMALLEST)
end

---@return number the greatest double below `x`
local function pred(x) return -succ(-x) end

dimensions.succ, dimensions.pred = succ, pred

local function power_below(x)
  local _, exponent = math.frexp(x)
  return 2 ^ (exponent - 1)
end

-- By kind: the greatest value at or below `x`.
local BELOW = {
  whole = function(x) return x end, computed = function(x) return x end,
  real = function(x) return x end, integer = function(x) return x end, power = power_below,
}

-- By kind: the least value above `x`.
local ABOVE = {
  whole = function(x) return x + 1 end, computed = function(x) return x + 1 end, real = succ,
  integer = function(x) return x + 1 end,
  power = function(x) return x < 1 and 1 or power_below(x) * 2 end,
}

---@return number the greatest value of a dimension that is at most `x`
function dimensions.below(dim, x) return BELOW[dim.kind](x) end

---@return number the least value of a dimension that is more than `x`
function dimensions.above(dim, x) return ABOVE[dim.kind](x) end

-- ---- the dimensions of a comparison

---@class loam.Dimensions
---@field list loam.Dimension[]
---@field by_key table<string, loam.Dimension>

---@return loam.Dimensions
function dimensions.new() return { list = {}, by_key = {} } end

local function add(all, key, dim)
  all.list[#all.list + 1] = dim
  all.by_key[key] = dim
  dim.number, dim.lo, dim.hi = #all.list, dim.least, dim.most
  return dim
end

-- Returns the dimension of an input; makes it from `given` if it is new.
function dimensions.input(all, key, given)
  return all.by_key[key] or add(all, key, given)
end

local LARGE = 2 ^ 52

-- Returns the dimension of an expression; nil if it is no finite number for some request.
local function computed_number(all, expression, key, name)
  if all.by_key[key] then return all.by_key[key] end
  local least, most, is_total = ranges.of(expression)
  if not is_total then return nil end
  local is_integer = least > -LARGE and most < LARGE and ranges.is_whole(expression)
  return add(all, key, { kind = is_integer and "integer" or "real", name = name,
                         expression = expression, least = least, most = most })
end

local function is_finite(n) return type(n) == "number" and n - n == 0 end

-- Returns the greatest value v of a dimension for which v < k ("lt") or v <= k ("le").
local function last_value(dim, cmp, k)
  if dim.kind == "integer" then return cmp == "lt" and math.ceil(k) - 1 or math.floor(k) end
  return cmp == "lt" and pred(k) or k
end

-- Returns the least value v of a dimension for which k < v or k <= v.
local function first_value(dim, cmp, k) return -last_value(dim, cmp, -k) end

-- Returns `dim, low, high` so that the condition holds if and only if low <= dim <= high; nil if
-- the condition does not compare a real or integer dimension with a constant.
local function as_range(all, c)
  local is_left = type(c.left) == "table"
  local expression, k = c.left, c.right
  if not is_left then expression, k = c.right, c.left end
  if type(expression) ~= "table" or not is_finite(k) then return nil end
  local dim = computed_number(all, expression, is_left and c.left_key or c.right_key,
    is_left and c.left_text or c.right_text)
  if not dim then return nil end
  if c.cmp == "eq" and dim.kind == "integer" and k % 1 ~= 0 then return nil end
  if c.cmp == "eq" then return dim, k, k end
  if is_left then return dim, -math.huge, last_value(dim, c.cmp, k) end
  return dim, first_value(dim, c.cmp, k), math.huge
end

-- Returns the dimension of a condition that was computed, and the range in which it is true.
---@param c table { cmp, left, right, left_key, right_key, left_text, right_text, text, key }
function dimensions.computed(all, c)
  local dim, low, high = as_range(all, c)
  if dim then return dim, low, high end
  dim = all.by_key[c.key]
    or add(all, c.key, { kind = "computed", name = c.text, condition = c, least = 0, most = 1 })
  return dim, 1, 1
end

-- ---- words

-- Returns a bound of a real dimension as text. Of the two that are possible, such as `x >= 1` and
-- `x > 0.99...`, it returns the shorter one.
local function real_words(dim, sign, value)
  local short = ("%.14g"):format(value)
  local other = ("%.14g"):format((sign == "<" and succ(value) or pred(value)) + 0) -- 0, not -0
  if tonumber(short) == value and #short <= #other then
    return ("%s %s= %s"):format(dim.name, sign, short)
  end
  return ("%s %s %s"):format(dim.name, sign, other)
end

local function bound_words(dim, sign, value)
  if dim.kind == "real" then return real_words(dim, sign, value) end
  return ("%s %s= %d"):format(dim.name, sign, value)
end

-- Returns the range `lo` to `hi` of a dimension as a condition that a policy could have.
function dimensions.words(dim, lo, hi)
  local is_flag = dim.kind == "computed" or dim.field == "zero"
  if is_flag and lo == 1 then return dim.name end
  if is_flag then
    return "not " .. (dim.name:find(" ", 1, true) and "(" .. dim.name .. ")" or dim.name)
  end
  if lo == hi then return ("%s == %.14g"):format(dim.name, lo) end
  local out = {}
  if lo > dim.least then out[#out + 1] = bound_words(dim, ">", lo) end
  if hi < dim.most then out[#out + 1] = bound_words(dim, "<", hi) end
  return table.concat(out, " and ")
end

return dimensions
