-- policy_query.lua - questions about a policy, for check, explain, plan and test: the query, its
-- answer, the errors of a refused policy.

local hex = require("loam.report.hex")
local json = require("loam.report.json")
local manifest = require("loam.command.manifest")
local terminal = require("loam.command.terminal")

local policy_query = {}

local QUERY_KEYS = {
  "tag", "size", "align", "node", "live", "device", "file", "func", "module", "line", "batch",
  "request", "pressure", "node-free", "device-free",
}

-- A value of several lines is written in hexadecimal digits.
local function add(lines, key, value)
  if type(value) == "number" then value = ("%d"):format(value)
  elseif value:find("\n", 1, true) then key, value = "hex " .. key, hex.encode(value) end
  lines[#lines + 1] = key .. " " .. value
end

-- Makes the query that loam_policy_inspect reads.
---@param given table options by name
function policy_query.text(verb, given)
  local lines = { "verb " .. verb }
  for _, name in ipairs(QUERY_KEYS) do
    local value, key = given[name], name:gsub("-", "")
    if type(value) == "table" then
      for _, one in ipairs(value) do add(lines, key, one) end
    elseif value ~= nil then
      add(lines, key, value)
    end
  end
  if given.zero then add(lines, "zero", 1) end
  return table.concat(lines, "\n")
end

-- Makes the answer about a policy whose file cannot be read, or is a damaged image, in the form of
-- other refusals. `line` may be nil.
local function unread(verb, path, words, line)
  return json.encode({
    verb = verb, version = json.FORMAT, policy = path, ok = false,
    errors = json.array { { file = path, line = line, class = "file", reason = words } },
  }, { "verb", "version", "policy", "ok" })
end

-- Asks about the policy in a manifest of Kubernetes. The hash in the answer is the hash of the
-- policy's exact text, which a host reads from the mounted ConfigMap.
---@return string answer
local function ask_manifest(context, verb, path, query, shows_progress)
  local text, exact, line = manifest.read(context, path)
  if not text then return unread(verb, path, exact, line) end
  local answer, problem = context.api.inspect_text(path, text, query, shows_progress)
  if not answer then context.fail(problem) end
  local hash = context.api.hash_text(text)
  return (answer:gsub('"hash":"' .. hash .. '"', '"hash":"' .. context.api.hash_text(exact) .. '"'))
end

-- Asks, and returns the answer as text: one JSON object; for a batch, one JSON object a line. If
-- the answer is for people, what takes long is shown on a terminal meanwhile.
---@param policy string|table a path; or { name, text } of a policy that no file has; or { name,
---  words } of a policy that cannot be read
---@return string
function policy_query.ask(context, verb, policy, given)
  local query, path, shows_progress = policy_query.text(verb, given), policy, not given.json
  local text, words, status
  if type(policy) == "table" then
    path = policy.name
    if not policy.text then return unread(verb, path, policy.words) end
    text, words, status = context.api.inspect_text(path, policy.text, query, shows_progress)
  elseif manifest.is_one(path) then
    text = ask_manifest(context, verb, path, query, shows_progress)
  else
    text, words, status = context.api.inspect(path, query, shows_progress)
  end
  if text then return (text:gsub("\n+$", "")) end
  if status ~= context.api.EIO and status ~= context.api.EPOLICY then context.fail(words) end
  local prefix = path .. ": "
  if words:sub(1, #prefix) == prefix then words = words:sub(#prefix + 1) end
  return unread(verb, path, words)
end

---@return table the answer of policy_query.ask, decoded
function policy_query.read(context, text)
  local answer, message = json.decode(text)
  return answer or context.fail("the engine's answer is " .. message)
end

-- Shows the errors of a refused policy. Returns whether the policy was refused.
function policy_query.is_refused(context, answer)
  if answer.ok ~= false or not answer.errors or #answer.errors == 0 then return false end
  context.warn(terminal.faults(answer.errors, context.paint_error))
  return true
end

---@return integer exit status of an answer
function policy_query.status(answer)
  return answer.ok == false and 1 or 0
end

return policy_query
