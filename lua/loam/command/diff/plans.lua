-- plans.lua - the requests for which two plans differ, as boxes.
--
-- One walk goes down both decision trees. Each test divides the present box, and a test that the
-- box has decided is passed over. Equal cells are one table, so a walk ends where the rests of the
-- plans are equal. (Liu and Gouda, Diverse firewall design, 2008, compare decision diagrams so.)

local boxes = require("loam.command.diff.boxes")
local dimensions = require("loam.command.diff.dimensions")
local witness = require("loam.command.diff.witness")

local plans = {}

local MOST_STEPS = 2000000 -- of all walks of a comparison; parts after that are undecided
local STEPS_TO_AGREE = 20000 -- of one search of plans.may_agree

---@class loam.PlanDifference a box in which the plans have these leaves
---@field old loam.DiffCell
---@field new loam.DiffCell
---@field box table
---@field point table|nil a request in the box, by dimension; nil: undecided

---@param dims loam.Dimensions
function plans.new(dims) return { dims = dims, done = {}, steps = MOST_STEPS } end

-- Follows a cell through the tests that the present ranges decide.
local function reduced(cell)
  while cell.dim do
    local dim, upto = cell.dim, cell.upto
    if dim.hi <= upto then
      cell = cell.yes
    elseif dim.lo > upto then
      cell = cell.no
    else
      return cell
    end
  end
  return cell
end

local function present_box(dims)
  local box = {}
  for _, dim in ipairs(dims.list) do
    if dim.lo ~= dim.least or dim.hi ~= dim.most then box[dim] = { dim.lo, dim.hi } end
  end
  return box
end

local function add(found, dims, a, b)
  local key = a.id .. ":" .. b.id
  local group = found[key]
  if not group then
    group = { old = a, new = b, boxes = {} }
    found[key] = group
    found[#found + 1] = group
  end
  group.boxes[#group.boxes + 1] = present_box(dims)
end

local function walk(plan_set, found, a, b)
  a, b = reduced(a), reduced(b)
  if a == b then return end
  if not a.dim and not b.dim then return add(found, plan_set.dims, a, b) end
  if plan_set.steps == 0 then
    found.left_over = found.left_over + 1
    return
  end
  plan_set.steps = plan_set.steps - 1
  local cell = a.dim and a or b
  local dim, upto = cell.dim, cell.upto
  local lo, hi = dim.lo, dim.hi
  dim.hi = dimensions.below(dim, upto)
  if dim.hi >= lo then walk(plan_set, found, a, b) end
  dim.lo, dim.hi = dimensions.above(dim, upto), hi
  if dim.lo <= hi then walk(plan_set, found, a, b) end
  dim.lo = lo
end

-- Returns whether the present ranges may hold a request to which both plans give one chain.
local function may_agree(steps, a, b)
  a, b = reduced(a), reduced(b)
  if a == b then return true end
  if not a.dim and not b.dim then return false end
  if steps.left == 0 then return true end
  steps.left = steps.left - 1
  local cell = a.dim and a or b
  local dim, upto = cell.dim, cell.upto
  local lo, hi = dim.lo, dim.hi
  dim.hi = dimensions.below(dim, upto)
  local found = dim.hi >= lo and may_agree(steps, a, b)
  dim.lo, dim.hi = dimensions.above(dim, upto), hi
  found = found or (dim.lo <= hi and may_agree(steps, a, b))
  dim.lo = lo
  return found
end

-- Returns whether both plans may give one chain to a request of some sizes. False is certain.
---@param a loam.DiffCell the root of a plan
---@param b loam.DiffCell
---@param size loam.Dimension
function plans.may_agree(a, b, size, from, to)
  size.lo, size.hi = math.max(from, size.least), math.min(to, size.most)
  local found = may_agree({ left = STEPS_TO_AGREE }, a, b)
  size.lo, size.hi = size.least, size.most
  return found
end

-- Sorts the boxes of a group by whether they hold a request.
local function sorted(dims, group)
  local certain, doubtful = {}, {}
  for _, box in ipairs(group.boxes) do
    local point, is_certain = witness.find(dims, box)
    if point then
      certain[#certain + 1] = box
    elseif not is_certain then
      doubtful[#doubtful + 1] = box
    end
  end
  return certain, doubtful
end

-- Compares two plans, given by their root cells.
---@return loam.PlanDifference[] whose field `left_over` counts parts that were too many to walk
function plans.compare(plan_set, a, b)
  local key = a.id .. ":" .. b.id
  if plan_set.done[key] then return plan_set.done[key] end
  local found, list = { left_over = 0 }, { left_over = 0 }
  walk(plan_set, found, a, b)
  list.left_over = found.left_over
  for _, group in ipairs(found) do
    local certain, doubtful = sorted(plan_set.dims, group)
    for _, box in ipairs(boxes.join(certain)) do
      list[#list + 1] = { old = group.old, new = group.new, box = box,
                          point = (witness.find(plan_set.dims, box, true)) }
    end
    for _, box in ipairs(boxes.join(doubtful)) do
      list[#list + 1] = { old = group.old, new = group.new, box = box }
    end
  end
  plan_set.done[key] = list
  return list
end

return plans
