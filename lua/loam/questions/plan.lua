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
  local count, n = 0, 0
  leaves.each(class.made.tree, function() count = count + 1 end)
  local write_row, finish = answer.begin_rows {
    verb = "plan", policy = answer.file_name(), ok = true, tag = where.tag, leaves = count,
  }
  leaves.each(class.made.tree, function(leaf)
    n = n + 1
    write_row(leaves.row(made, where, leaf, n))
  end)
  finish()
  return true
end

return plan
