-- diag - what is wrong with a policy: made where it is found, worded so that a person can act.
--
-- A diagnostic is thrown as an error value. What tells people of it (diag.suggest, absent,
-- from_error, render, object and lines) is in words.lua.

local find = string.find

local diag = {}

---@class loam.Led a condition on the path to the fault
---@field line integer
---@field condition string
---@field holds boolean

---@class loam.Diagnostic
---@field file string|nil where it is not the policy's own
---@field line integer|nil
---@field class string one word
---@field reason string
---@field suggestion string|nil what to write instead
---@field led loam.Led[]|nil
---@field source string|nil text of the line, where it comes with the diagnostic

local Diagnostic = {}

---@return loam.Diagnostic the same table, recognised from now on
function diag.new(fields)
  return setmetatable(fields, Diagnostic)
end

function diag.throw(fields)
  error(diag.new(fields), 0)
end

function diag.is(value)
  return type(value) == "table" and getmetatable(value) == Diagnostic
end

-- Raised by the core when a step has used up its time or memory; only the core may handle it.
function diag.is_budget(value)
  return type(value) == "string" and find(value, "^loam%-budget: ") ~= nil
end

-- Most policies are right, so the words are loaded for the first that is not. If a budget ends
-- that, it is begun again the next time.
local function words_of(_, name)
  local ok, words = pcall(require, "loam.words")
  if ok then return words[name] end
  package.loaded["loam.words"] = nil
  return error(words, 0)
end

return setmetatable(diag, { __index = words_of })
