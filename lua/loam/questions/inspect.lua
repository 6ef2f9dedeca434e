-- inspect.lua - answers the queries of loam_policy_inspect about a policy that does not become
-- live.

local answer = require("loam.questions.answer")
local policy = require("loam.compiler.policy")
local query = require("loam.questions.query")

local inspect = {}

-- The verbs of queries, with what the policy's classes keep for them (policy.open). Each is a
-- module lua/loam/questions/VERB.lua with a function run(made, asked).
local VERBS = {
  check = "paths", explain = "paths", plan = "paths", test = "paths", nodes = "trees",
  confirm = "unchecked",
}

-- Answers a query of loam_policy_inspect about the policy with this text, by core.write. A refused
-- policy is an answer as well; a query that is not valid gives nil and a message.
---@return true|nil, string|nil message
function inspect.answer(file_name, text, query_text)
  answer.open(file_name, text)
  local asked, message = query.parse(query_text)
  if not asked then return nil, message end
  if not VERBS[asked.verb] then
    return nil, asked.verb and "a query has no verb '" .. asked.verb .. "'"
      or "a query begins with a line such as 'verb check'"
  end
  local made, errors = policy.open(file_name, text, VERBS[asked.verb])
  if made then return require("loam.questions." .. asked.verb).run(made, asked) end
  answer.refused(asked.verb, errors)
  return true
end

return inspect
