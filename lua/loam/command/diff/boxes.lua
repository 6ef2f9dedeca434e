-- boxes.lua - joins neighbouring boxes, so that a report has as few regions as possible.
--
-- A box is a table from dimension to { lo, hi }; it has no entry for a dimension with all its
-- values. Two boxes that differ in one dimension, in which they are neighbours, are one box.

local dimensions = require("loam.command.diff.dimensions")

local boxes = {}

local function range_of(box, dim)
  local range = box[dim]
  if range then return range[1], range[2] end
  return dim.least, dim.most
end

-- Returns the text of a box without the dimension `left_out`.
---@param used loam.Dimension[] the dimensions that the text names
function boxes.key(box, used, left_out)
  local out = {}
  for _, dim in ipairs(used) do
    local range = dim ~= left_out and box[dim]
    if range then out[#out + 1] = ("%d:%.17g:%.17g"):format(dim.number, range[1], range[2]) end
  end
  return table.concat(out, " ")
end

---@return loam.Dimension[] the dimensions that the boxes narrow, in their order
function boxes.used(list)
  local seen, used = {}, {}
  for _, box in ipairs(list) do
    for dim in pairs(box) do
      if not seen[dim] then
        seen[dim] = true
        used[#used + 1] = dim
      end
    end
  end
  table.sort(used, function(a, b) return a.number < b.number end)
  return used
end

local function widen(box, dim, lo, hi)
  if lo <= dim.least and hi >= dim.most then
    box[dim] = nil
  else
    box[dim] = { lo, hi }
  end
end

-- Joins the boxes of one group, which differ in `dim` alone. Appends the results to `out`.
local function join_group(group, dim, out)
  table.sort(group, function(a, b) return range_of(a, dim) < range_of(b, dim) end)
  local last
  for _, box in ipairs(group) do
    local lo, hi = range_of(box, dim)
    local from, to
    if last then from, to = range_of(last, dim) end
    if last and dimensions.above(dim, to) >= lo then
      widen(last, dim, from, math.max(to, hi))
    else
      out[#out + 1] = box
      last = box
    end
  end
end

local function join_along(list, used, dim)
  local groups, order, out = {}, {}, {}
  for _, box in ipairs(list) do
    local key = boxes.key(box, used, dim)
    if not groups[key] then
      groups[key] = {}
      order[#order + 1] = groups[key]
    end
    table.insert(groups[key], box)
  end
  for _, group in ipairs(order) do join_group(group, dim, out) end
  return out
end

-- Joins boxes until no two are neighbours. The boxes have no request in common.
---@return table[] boxes, which may be changed ones of `list`
function boxes.join(list)
  local used = boxes.used(list)
  local before
  repeat
    before = #list
    for i = #used, 1, -1 do list = join_along(list, used, used[i]) end
  until #list == before
  return list
end

return boxes
