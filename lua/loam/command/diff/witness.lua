-- witness.lua - finds a request in a box, or shows that the box has none.
--
-- The ranges of inputs are independent, so a box of inputs alone has the request with the least
-- size in it. Where expressions of inputs are bounded too, the box is divided into halves, and the
-- halves in which a bound cannot be met are dropped (branch and bound). This ends with a request,
-- with none, or after MOST_STEPS without an answer.

local condition = require("loam.symbolic.condition")
local dimensions = require("loam.command.diff.dimensions")
local ranges = require("loam.command.diff.ranges")

local witness = {}

local MOST_STEPS = 3000     -- of one search for a request
local MOST_TO_SHORTEN = 300 -- of one search for a smaller size
local ALL_STEPS = 60000     -- of all searches of a comparison; later ones end without an answer

local to_decide, to_shorten -- { left = steps } of both kinds of searches

-- Begins another comparison.
function witness.reset() to_decide, to_shorten = { left = ALL_STEPS }, { left = ALL_STEPS } end

witness.reset()

---@return boolean whether a dimension is an input of the request
local function is_input(dim) return dim.field ~= nil end

-- ---- the bounds of a box

local function inputs_of(e, seen, list)
  if type(e) ~= "table" then return end
  if e.op ~= "input" then
    inputs_of(e.a, seen, list)
    return inputs_of(e.b, seen, list)
  end
  if not seen[e.dim] then
    seen[e.dim] = true
    list[#list + 1] = e.dim
  end
end

-- Lists the bounds of a box that are not about one input, and the inputs that they read.
local function bounds_of(box)
  local bounds, inputs, seen = {}, {}, {}
  for dim, range in pairs(box) do
    if dim.expression then
      bounds[#bounds + 1] = { dim = dim, lo = range[1], hi = range[2] }
      inputs_of(dim.expression, seen, inputs)
    elseif dim.kind == "computed" then
      bounds[#bounds + 1] = { dim = dim, outcome = range[1] == 1 }
      inputs_of(dim.condition.left, seen, inputs)
      inputs_of(dim.condition.right, seen, inputs)
    end
  end
  table.sort(bounds, function(a, b) return a.dim.number < b.dim.number end)
  table.sort(inputs, function(a, b) return a.number < b.number end)
  return bounds, inputs
end

-- Returns whether no request in the present ranges of the inputs meets the bounds.
local function is_excluded(bounds)
  for _, bound in ipairs(bounds) do
    if bound.outcome == nil then
      local lo, hi, is_number = ranges.of(bound.dim.expression)
      if is_number and (hi < bound.lo or lo > bound.hi) then return true end
    else
      local holds = ranges.holds(bound.dim.condition)
      if holds ~= nil and holds ~= bound.outcome then return true end
    end
  end
  return false
end

local function meets(bounds, point)
  local function read(input) return point[input.dim] end
  for _, bound in ipairs(bounds) do
    if bound.outcome == nil then
      local value = condition.evaluate(bound.dim.expression, read)
      if not (value >= bound.lo and value <= bound.hi) then return false end
    elseif condition.holds({ complex = true, cmp = bound.dim.condition.cmp,
        left = bound.dim.condition.left, right = bound.dim.condition.right }, read)
        ~= bound.outcome then
      return false
    end
  end
  return true
end

-- ---- the search

local function middle(dim)
  if dim.kind ~= "power" then return math.floor((dim.lo + dim.hi) / 2) end
  local _, low = math.frexp(dim.lo)
  local _, high = math.frexp(dim.hi)
  return 2 ^ math.floor((low + high) / 2 - 1)
end

local function usual(dim)
  return math.min(math.max(dim.default, dim.lo), dim.hi)
end

local function low(dim) return dim.lo end
local function high(dim) return dim.hi end

local CORNERS = { usual, low, middle, high }

local function tried(bounds, inputs)
  for _, corner in ipairs(CORNERS) do
    local point = {}
    for _, dim in ipairs(inputs) do point[dim] = corner(dim) end
    if meets(bounds, point) then return point end
  end
  return nil
end

local function widest(inputs)
  local best, width = nil, 0
  for _, dim in ipairs(inputs) do
    if dim.hi - dim.lo > width then best, width = dim, dim.hi - dim.lo end
  end
  return best
end

local function save(inputs)
  local saved = {}
  for i, dim in ipairs(inputs) do saved[i] = { dim.lo, dim.hi } end
  return saved
end

local function restore(inputs, saved)
  for i, dim in ipairs(inputs) do dim.lo, dim.hi = saved[i][1], saved[i][2] end
end

-- Puts the halves of the present ranges on the stack, the lower one on top.
local function divide(stack, inputs)
  local dim = widest(inputs)
  if not dim then return end
  local lo, hi, cut = dim.lo, dim.hi, middle(dim)
  dim.lo = dimensions.above(dim, cut)
  stack[#stack + 1] = save(inputs)
  dim.lo, dim.hi = lo, cut
  stack[#stack + 1] = save(inputs)
  dim.hi = hi
end

-- Searches the present ranges of the inputs. Returns a point (dimension -> value), or nil and
-- whether that is certain. The steps are at most `most`, and are taken from `budget`.
local function search(bounds, inputs, most, budget)
  local stack = { save(inputs) }
  while #stack > 0 do
    if most == 0 or budget.left == 0 then return nil, false end
    most, budget.left = most - 1, budget.left - 1
    restore(inputs, table.remove(stack))
    if not is_excluded(bounds) then
      local point = tried(bounds, inputs)
      if point then return point end
      divide(stack, inputs)
    end
  end
  return nil, true
end

-- Looks for a point with a smaller value of one input; each search halves the values.
local function shortened(bounds, inputs, dim, point)
  local saved = save(inputs)
  local from, to = dim.lo, point[dim]
  while from < to do
    restore(inputs, saved)
    local cut = math.floor((from + to) / 2)
    dim.lo, dim.hi = from, cut
    local found = search(bounds, inputs, MOST_TO_SHORTEN, to_shorten)
    if found then
      point, to = found, found[dim]
    else
      from = cut + 1
    end
  end
  restore(inputs, saved)
  return point
end

-- Returns the inputs of which a witness has small values, the size first.
local function inputs_to_shorten(inputs)
  local list = {}
  for _, dim in ipairs(inputs) do
    if dim.field == "size" then table.insert(list, 1, dim) end
    if dim.field == "live" then list[#list + 1] = dim end
  end
  return list
end

-- Returns a point with small values of these inputs.
local function shortest(bounds, inputs, point)
  for _, dim in ipairs(inputs_to_shorten(inputs)) do
    point = shortened(bounds, inputs, dim, point)
    dim.lo, dim.hi = point[dim], point[dim]
  end
  return point
end

-- ---- requests

local function with_ranges(dims, box, run)
  for _, dim in ipairs(dims.list) do
    local range = box[dim]
    dim.lo, dim.hi = range and range[1] or dim.least, range and range[2] or dim.most
  end
  local point, is_certain = run()
  for _, dim in ipairs(dims.list) do dim.lo, dim.hi = dim.least, dim.most end
  return point, is_certain
end

-- Gives each input that the bounds leave free its usual value, or the nearest one in the box.
local function completed(dims, box, point)
  for _, dim in ipairs(dims.list) do
    if is_input(dim) and point[dim] == nil then
      local range = box[dim]
      local lo, hi = range and range[1] or dim.least, range and range[2] or dim.most
      point[dim] = math.min(math.max(dim.default, lo), hi)
    end
  end
  return point
end

-- Finds a request in a box. Returns its values by dimension; or nil, and whether it is certain that
-- the box holds no request. With `is_short`, its size is the smallest that a search finds.
---@param dims loam.Dimensions
---@param is_short boolean|nil
---@return table|nil, boolean
function witness.find(dims, box, is_short)
  local bounds, inputs = bounds_of(box)
  local point, is_certain = {}, true
  if #bounds > 0 then
    point, is_certain = with_ranges(dims, box, function()
      local saved = save(inputs)
      local found, certain = search(bounds, inputs, MOST_STEPS, to_decide)
      if not found or not is_short then return found, certain end
      restore(inputs, saved)
      return shortest(bounds, inputs, found), true
    end)
  end
  if not point then return nil, is_certain end
  return completed(dims, box, point), true
end

return witness
