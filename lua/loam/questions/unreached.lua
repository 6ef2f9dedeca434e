-- unreached.lua - the lines on which `pick` returns for no request, because conditions above them
-- leave none.

local budget = require("loam.compiler.budget")
local compile = require("loam.compiler.compile")
local dsl = require("loam.language.dsl")
local leaves = require("loam.questions.leaves")
local policy = require("loam.compiler.policy")
local scan = require("loam.compiler.scan")

local unreached = {}

local MOST_PATHS = 3000 -- that are run; of a policy with more, nothing is said
local MOST_LINES = 20000 -- that they execute; likewise

local function sorted(set)
  local list = {}
  for line in pairs(set) do list[#list + 1] = line end
  table.sort(list)
  return list
end

-- Returns the lines of `pick` that return a value for no request, after a policy.compile_all
-- without faults. Most policies have none, and then few paths are run. A line may be for another
-- machine: of a policy that asks for the nodes or devices of this one, nothing is said.
---@return integer[]
function unreached.lines(made)
  if dsl.asks_machine() then return {} end
  local left, count, lines, last = scan.returns(made.pick), 0, 0, nil
  local function visit(line)
    lines = lines + 1
    if lines == MOST_LINES then
      count = MOST_PATHS
      error("enough", 0) -- ends the run, not the check
    end
    if left[line] == false then left[line] = nil end
    last = line
  end
  for _, class in ipairs(policy.classes()) do
    leaves.each(class.made.tree, function(leaf)
      if next(left) == nil or count == MOST_PATHS then return end
      count = count + 1
      budget.step("following leaf " .. count .. " of tag '" .. class.where.tag .. "'")
      compile.visit_lines(made, class.where, leaf.path, visit)
      left[last] = nil
    end)
  end
  return count < MOST_PATHS and sorted(left) or {}
end

return unreached
