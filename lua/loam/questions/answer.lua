-- answer.lua - writes the answers of loam_policy_inspect, one JSON object a line.

local budget = require("loam.compiler.budget")
local core = require("loam.core")
local diag = require("loam.report.diag")
local json = require("loam.report.json")

local answer = {}

local KEYS = {
  "verb", "version", "policy", "ok", "name", "n", "tag", "func", "module", "size", "strategy",
  "kind", "what", "line", "got", "expect", "chain", "leaves", "covered", "missed", "rows",
  "conditions", "condition", "holds", "path", "generation", "tags", "strategies", "tests",
  "always", "coverage", "errors", "warnings", "file", "class", "reason", "source", "led",
  "suggestion", "hash",
}

local file -- { name, text, lines }

-- Sets the policy that the answers are about.
function answer.open(file_name, text)
  file = { name = file_name, text = text, lines = diag.lines(text) }
end

---@return string the name of the policy's file
function answer.file_name() return file.name end

-- Writes an answer on one line. Adds the number of its format. Each piece is a step, because an
-- answer can have a row for each of a policy's leaves. All rows together can be larger than a
-- policy's heap, so a list of rows is a function that makes them (json.write).
function answer.write(object)
  object.version = json.FORMAT
  local n = 0
  json.write(object, KEYS, function(piece)
    n = n + 1
    budget.step("writing piece " .. n .. " of the answer")
    core.write(piece)
  end)
  core.write("\n")
end

---@return table diagnostics as they stand in an answer
function answer.objects(list)
  local out = json.array {}
  for i, d in ipairs(list) do out[i] = diag.object(d, file.name, file.lines) end
  return out
end

-- Writes the answer about a policy that is refused.
function answer.refused(verb, errors)
  answer.write { verb = verb, policy = file.name, ok = false, errors = answer.objects(errors) }
end

---@return table a story of trace.tell as it stands in an answer
function answer.steps(story)
  local out = json.array {}
  for i, step in ipairs(story) do
    out[i] = { line = step.line, condition = step.condition, holds = step.holds }
  end
  return out
end

---@return table a copy of a list that is written as an array, even when it is empty
function answer.list(items)
  local out = json.array {}
  for i, item in ipairs(items) do out[i] = item end
  return out
end

return answer
