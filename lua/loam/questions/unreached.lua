-- unreached.lua - the lines on which `pick` returns for no request, because conditions above them
-- leave none.

local budget = require("loam.compiler.budget")
local compile = require("loam.compiler.compile")
local dsl = require("loam.language.dsl")
local leaves = require("loam.questions.leaves")
local policy = require("loam.compiler.policy")
local scan = require("loam.compiler.scan")

local unreached = {}

local MOST_LINES = 20000 -- that are executed to answer; a policy that needs more gets no answer

local function sorted(set)
  local list = {}
  for line in pairs(set) do list[#list + 1] = line end
  table.sort(list)
  return list
end

-- Returns the lines of `pick` that return a value for no request, after a policy.compile_all
-- without faults. Most policies have none, and then few paths are run. Returns no line of a policy
-- that asks for the nodes or devices of this machine: such a line may be for another machine.
-- Returns no line either if classes were joined: only one site of each class is run.
---@return integer[]
function unreached.lines(made)
  if dsl.asks_machine() or policy.is_joined() then return {} end
  local left, paths, lines, last = scan.returns(made.pick), 0, 0, nil
  local function visit(line)
    lines = lines + 1
    if lines >= MOST_LINES then error("enough", 0) end -- ends the run, not the check
    if left[line] == false then left[line] = nil end
    last = line
  end
  for _, class in ipairs(policy.classes()) do
    leaves.each(class.made.tree, function(leaf)
      if next(left) == nil or lines >= MOST_LINES then return end
      paths = paths + 1
      budget.step("following leaf " .. paths .. " of tag '" .. class.where.tag .. "'")
      compile.visit_lines(made, class.where, leaf.path, visit)
      left[last] = nil
    end)
  end
  return lines < MOST_LINES and sorted(left) or {}
end

return unreached
