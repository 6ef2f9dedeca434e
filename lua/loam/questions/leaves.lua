-- leaves.lua - the leaves of a traced tree, for answers.

local answer = require("loam.questions.answer")
local budget = require("loam.compiler.budget")
local compile = require("loam.compiler.compile")
local condition = require("loam.symbolic.condition")
local request = require("loam.symbolic.request")
local strategy = require("loam.language.strategy")

local leaves = {}

-- Returns the leaf of a traced tree that a request reaches.
function leaves.reached(tree, point)
  local function read(input) return request.read(point, input) end
  while tree.condition do tree = condition.holds(tree.condition, read) and tree.yes or tree.no end
  return tree
end

-- Calls `visit` for each leaf of a tree, in the order of its paths.
function leaves.each(node, visit)
  if not node.condition then return visit(node) end
  leaves.each(node.yes, visit)
  leaves.each(node.no, visit)
end

---@return integer
function leaves.count(tree)
  local n = 0
  leaves.each(tree, function() n = n + 1 end)
  return n
end

---@return table the row of leaf number `n` in an answer
function leaves.row(made, where, leaf, n)
  budget.step("explaining leaf " .. n .. " of tag '" .. where.tag .. "'")
  local story, chain, line = compile.tell_path(made, where, leaf.path)
  return { conditions = answer.steps(story), strategy = strategy.names(chain)[1],
           chain = answer.list(strategy.names(chain)), line = line }
end

return leaves
