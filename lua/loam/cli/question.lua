-- question - what check, explain, plan and test have in common: asking about a policy and hearing
-- that it is refused.

local json = require("loam.json")
local terminal = require("loam.cli.terminal")

local question = {}

local QUERY_KEYS = {
  "tag", "size", "align", "node", "live", "device", "file", "func", "module", "line", "batch",
}

local function add(lines, key, value)
  lines[#lines + 1] = key .. " " .. (type(value) == "number" and ("%d"):format(value) or value)
end

-- The query of loam_policy_inspect.
---@param given table options by name
function question.query(verb, given)
  local lines = { "verb " .. verb }
  for _, key in ipairs(QUERY_KEYS) do
    local value = given[key]
    if type(value) == "table" then
      for _, one in ipairs(value) do add(lines, key, one) end
    elseif value ~= nil then
      add(lines, key, value)
    end
  end
  if given.zero then add(lines, "zero", 1) end
  return table.concat(lines, "\n")
end

-- A policy that cannot even be read is refused in the form of all others.
local function unread(verb, path, words)
  return json.encode({
    verb = verb, policy = path, ok = false,
    errors = json.array { { file = path, class = "file", reason = words } },
  }, { "verb", "policy", "ok" })
end

-- The answer as text, one JSON object (for a batch: one a line).
---@return string
function question.ask(world, verb, path, given)
  local text, words, status = world.api.inspect(path, question.query(verb, given))
  if text then return (text:gsub("\n+$", "")) end
  if status ~= world.api.EIO then world.fail(words) end
  local prefix = path .. ": "
  if words:sub(1, #prefix) == prefix then words = words:sub(#prefix + 1) end
  return unread(verb, path, words)
end

---@return table answer of question.ask, read
function question.read(world, text)
  local answer, message = json.decode(text)
  return answer or world.fail("the engine's answer is " .. message)
end

-- Shows the errors of a refused policy; true if it is one.
function question.is_refused(world, answer)
  if answer.ok ~= false or not answer.errors or #answer.errors == 0 then return false end
  world.warn(terminal.faults(answer.errors, world.paint_error))
  return true
end

---@return integer exit status of an answer
function question.status(answer)
  return answer.ok == false and 1 or 0
end

return question
