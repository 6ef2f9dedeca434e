-- plan.lua - the answer to `plan`: a row for each leaf of a tag's plan.

local answer = require("loam.questions.answer")
local json = require("loam.report.json")
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
  local rows = json.array {}
  leaves.each(class.made.tree, function(leaf)
    rows[#rows + 1] = leaves.row(made, where, leaf, #rows + 1)
  end)
  answer.write {
    verb = "plan", policy = answer.file_name(), ok = true, tag = where.tag, leaves = #rows,
    rows = rows,
  }
  return true
end

return plan
