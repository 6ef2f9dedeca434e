-- plan.lua - the answer to `plan`: a row for each leaf of a tag's plan.

local answer = require("loam.questions.answer")
local leaves = require("loam.questions.leaves")
local policy = require("loam.compiler.policy")
local query = require("loam.questions.query")

local plan = {}

function plan.run(made, asked)
  local where = query.where(asked)
  local class = policy.class(where)
  if class.errors then
    answer.refused("plan", class.errors)
    return true
  end
  local function each_row(write)
    local n = 0
    leaves.each(class.made.tree, function(leaf)
      n = n + 1
      write(leaves.row(made, where, leaf, n))
    end)
  end
  answer.write {
    verb = "plan", policy = answer.file_name(), ok = true, tag = where.tag,
    leaves = leaves.count(class.made.tree), rows = each_row,
  }
  return true
end

return plan
