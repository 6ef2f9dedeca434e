-- tree.lua - the stacks of a profile as a tree, for one type of sample.

local profile = require("loam.command.profile.profile")

local tree = {}

---@class loam.ProfileNode
---@field name string
---@field frame loam.ProfileFrame|nil nil for the root
---@field value number of now; the sum of the samples in which the frame is at this place
---@field before number of the base; 0 if the profile is no difference
---@field sums number[] the values of now for all types of samples
---@field children loam.ProfileNode[] the largest first

local function new_node(name, frame)
  return { name = name, frame = frame, value = 0, before = 0, sums = {}, children = {},
           by_name = {} }
end

-- Returns the kind of a frame: of its function, or "native".
---@return string
function tree.kind(node)
  local frame = node.frame
  return frame and frame.func and frame.func.kind or "native"
end

local function child_of(node, frame)
  local kind = frame.func and frame.func.kind or ""
  local key = kind .. "\0" .. frame.name
  local child = node.by_name[key]
  if not child then
    child = new_node(frame.name, frame)
    node.by_name[key] = child
    node.children[#node.children + 1] = child
  end
  return child
end

local function add(node, sample, index)
  local before = sample.before
  for i, value in ipairs(sample.values) do
    node.sums[i] = (node.sums[i] or 0) + value + (before and before[i] or 0)
  end
  node.value = node.sums[index]
  node.before = node.before + (before and before[index] or 0)
end

local function is_larger(a, b)
  if a.value ~= b.value then return a.value > b.value end
  if a.before ~= b.before then return a.before > b.before end
  return a.name < b.name
end

-- Sorts the children of a node, and not those below them.
---@param node loam.ProfileNode
function tree.sort(node)
  table.sort(node.children, is_larger)
end

local function finish(node)
  node.by_name = nil
  tree.sort(node)
  for _, child in ipairs(node.children) do finish(child) end
end

-- Builds the tree of all samples.
---@param made loam.Profile
---@param index integer the position of the type of sample
---@return loam.ProfileNode root
function tree.build(made, index)
  local root = new_node("all")
  for _, sample in ipairs(made.samples) do
    local node = root
    add(node, sample, index)
    for _, frame in ipairs(profile.stack_frames(sample.stack)) do
      node = child_of(node, frame)
      add(node, sample, index)
    end
  end
  finish(root)
  return root
end

return tree
