-- support.lua - functions for the specs of the compiler: they make policies from a few lines, and
-- return decisions and refusals.

jit.off() -- as in the Lua state of a policy

-- busted wraps ffi.metatype: for a second call with an equal declaration the wrapper returns the
-- result of the first call, so the two anonymous structs of loam would be one type. The real
-- function is an upvalue of the wrapper.
local ffi = require("ffi")
for i = 1, 3 do
  local name, value = debug.getupvalue(ffi.metatype, i)
  if name == "original" then ffi.metatype = value end
end

package.loaded["loam.core"] = package.loaded["loam.core"] or require("core_stub")

local core = require("loam.core")
local driver = require("loam.driver")
local json = require("loam.report.json")
local policy = require("loam.compiler.policy")
local request = require("loam.symbolic.request")

local support = {}

support.core = core

local HEAD = "local a = loam.host { name = \"a\" } local b = loam.host { name = \"b\" } "
  .. "local c = loam.host { name = \"c\" } "

-- Runs `body` on a machine with devices.
function support.with_devices(count, body)
  core.device_count = count
  local options = require("loam.language.options")
  options.forget_devices()
  local ok, message = pcall(body)
  core.device_count = 0
  options.forget_devices()
  if not ok then error(message, 0) end
end

-- Makes the text of a policy file. `above` is the text before pick. `body` is the body of pick, and
-- begins on line 2.
function support.file(body, above, rest)
  return HEAD .. (above or "") .. " return loam.policy { pick = function(req)\n" .. body
    .. "\nend, "
    .. (rest or "") .. " }\n"
end

---@return table|nil the opened policy, or nil and its diagnostics
function support.open(text)
  return policy.open("test.lua", text)
end

local function where_of(where)
  return type(where) == "string" and { tag = where } or where or { tag = "" }
end

-- Returns the class of a site under a policy with this body.
function support.class(body, where, above)
  local made, errors = support.open(support.file(body, above))
  if not made then return { errors = errors } end
  return policy.class(where_of(where))
end

-- Makes a request from a size, or from a table of the fields that differ from the default.
function support.point(given)
  local point = request.point(0)
  if type(given) == "number" then given = { size = given } end
  for key, value in pairs(given) do point[key] = value end
  return point
end

-- Returns the names of the chain that the plan of the opened policy gives.
function support.ask(where, given)
  local class = policy.class(where_of(where))
  if class.errors then error(class.errors[1].class .. ": " .. class.errors[1].reason, 0) end
  local leaf = class.leaves[core.decide(class.plan, support.point(given)) + 1]
  return (leaf.words:gsub("'", ""):gsub(" or else ", ","))
end

-- Returns the answers of a policy with this body for a list of requests, as one string: "a b a".
function support.answers(body, requests, where, above)
  local made, errors = support.open(support.file(body, above))
  if not made then error(errors[1].class .. ": " .. errors[1].reason, 0) end
  local out = {}
  for i, given in ipairs(requests) do out[i] = support.ask(where, given) end
  return table.concat(out, " ")
end

-- Returns the answers of a policy with this body for a list of tags, as one string.
function support.tags(body, tags, above)
  local made, errors = support.open(support.file(body, above))
  if not made then error(errors[1].class .. ": " .. errors[1].reason, 0) end
  local out = {}
  for i, tag in ipairs(tags) do out[i] = support.ask(tag, 0) end
  return table.concat(out, " ")
end

-- Returns the first diagnostic of a policy with this body: from its load, from the tag, or from its
-- tests.
function support.refusal(body, where, above, rest)
  return support.refused(support.file(body, above, rest), where)
end

function support.refused(text, where)
  local made, errors = support.open(text)
  if made then errors = policy.class(where_of(where)).errors end
  if made and not errors then errors = policy.vet() end
  return errors and errors[1] or nil
end

---@return table expression of an input, by the name a policy gives it
function support.input(name)
  for _, input in ipairs(request.inputs()) do
    if input.name == name then return input end
  end
  error("no input " .. name)
end

-- Returns the decoded lines of an answer of driver.inspect.
function support.inspect(text, query)
  core.written = {}
  local ok, words = driver.inspect("test.lua", text, query)
  if not ok then return nil, words end
  local out = {}
  for line in table.concat(core.written):gmatch("[^\n]+") do out[#out + 1] = json.decode(line) end
  return out
end

return support
