-- json_answer.lua - the members that all answers in JSON share: `verb`, `version`, `ok`.
--
-- A verb with --json writes one JSON object a line. The answers about a policy have these members
-- already, since loam_policy_inspect writes them. The answers of hosts, boards and the machine get
-- them here. Each answer stays text: a number in it can be too large for a double.
-- lua/loam/command/schema/VERB.json describes the answers of VERB.

local json = require("loam.report.json")

local json_answer = {}

-- Returns an object with `head` before its other members.
local function prepend(head, members)
  return "{" .. head .. (members == "}" and "" or ",") .. members
end

-- Returns an answer with the shared members first. Without words, the answer keeps the value of
-- `ok` that it has; an answer without `ok` is a success. With words, the answer is a failure that
-- tells them in `error`.
local function complete(verb, text, words)
  local ok, members = text:match('^{"ok":(%a+),?(.*)$')
  local head = ('"verb":"%s","version":%d,"ok":%s'):format(verb, json.FORMAT,
    words and "false" or ok or "true")
  if words then head = head .. ',"error":' .. json.encode(words) end
  return prepend(head, members or text:sub(2))
end

-- Returns a context for the verb. Each line that the verb writes is an answer, and gets the members
-- that it lacks.
---@param context loam.Context
---@param verb string
---@return loam.Context
function json_answer.context(context, verb)
  local function write(text)
    for line in text:gmatch("[^\n]+") do
      local is_complete = line:find('^{"verb":')
      context.write((is_complete and line or complete(verb, line)) .. "\n")
    end
  end
  return setmetatable({ write = write }, { __index = context })
end

-- Returns the answer of a verb that failed.
---@param words string why it failed
---@param text string|nil the object that the verb has nonetheless, such as a report
function json_answer.failure(verb, words, text)
  return complete(verb, text or "{}", words) .. "\n"
end

return json_answer
