-- box_index.lua - finds the boxes of a list that contain a point.
--
-- A box is a table from dimension to { lo, hi }, as in diff/boxes.lua. It has no entry for a
-- dimension in which it contains all values. The index is a k-d tree: each inner node compares one
-- dimension with a number. A box that has values on both sides of the number is on both sides of
-- the node. (Bentley, Multidimensional binary search trees, 1975.)

local box_index = {}

local FEW = 6 -- a node with at most so many boxes is not divided

-- Returns the median of the numbers at which boxes begin along `dim`, or nil if none begins there.
local function cut_of(list, dim)
  local starts = {}
  for _, one in ipairs(list) do
    local range = one.box[dim]
    if range and range[1] > dim.least then starts[#starts + 1] = range[1] end
  end
  table.sort(starts)
  return starts[math.floor(#starts / 2) + 1]
end

-- Returns the boxes with values of `dim` below `cut`, and those with values from `cut` on.
local function divide(list, dim, cut)
  local below, above = {}, {}
  for _, one in ipairs(list) do
    local range = one.box[dim]
    if not range or range[1] < cut then below[#below + 1] = one end
    if not range or range[2] >= cut then above[#above + 1] = one end
  end
  return below, above
end

-- Returns the division whose larger part is smallest, as { dim, cut, below, above }. Returns nil if
-- each division has a part that is as long as the list.
local function best_division(list, dims)
  local best, least = nil, #list
  for _, dim in ipairs(dims) do
    local cut = cut_of(list, dim)
    if cut then
      local below, above = divide(list, dim, cut)
      local larger = math.max(#below, #above)
      if larger < least then
        best, least = { dim = dim, cut = cut, below = below, above = above }, larger
      end
    end
  end
  return best
end

-- Makes the index of a list of entries { box, ... }. The list itself is the index if it is short.
---@param dims loam.Dimension[]
function box_index.new(list, dims)
  if #list <= FEW then return list end
  local node = best_division(list, dims)
  if not node then return list end
  node.below, node.above = box_index.new(node.below, dims), box_index.new(node.above, dims)
  return node
end

local function is_inside(box, value_of)
  for dim, range in pairs(box) do
    local value = value_of(dim)
    if value < range[1] or value > range[2] then return false end
  end
  return true
end

-- Returns an entry whose box contains the point with these values, or nil. If the boxes of two
-- entries contain it, returns both entries.
---@param value_of fun(dim: loam.Dimension): number
function box_index.find(node, value_of)
  while node.cut do
    node = value_of(node.dim) < node.cut and node.below or node.above
  end
  local found
  for _, one in ipairs(node) do
    if is_inside(one.box, value_of) then
      if found then return found, one end
      found = one
    end
  end
  return found
end

return box_index
