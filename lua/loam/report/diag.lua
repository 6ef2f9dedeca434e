-- diag.lua - a diagnostic: one fault of a policy, its line, and what to write instead.
--
-- A diagnostic is a table that is thrown as an error value. The functions that turn diagnostics
-- into text are in diag_text.lua; they are called as diag.suggest, diag.render and so on.

local find = string.find

local diag = {}

---@class loam.Led a condition that pick met before the fault
---@field line integer
---@field condition string
---@field holds boolean

---@class loam.Diagnostic
---@field file string|nil nil: the policy's own file
---@field line integer|nil
---@field class string one word
---@field reason string
---@field suggestion string|nil what to write instead
---@field led loam.Led[]|nil
---@field source string|nil text of the line; nil: diag.render takes it from the policy's text

local Diagnostic = {}

---@return loam.Diagnostic `fields` itself, which diag.is recognises from now on
function diag.new(fields)
  return setmetatable(fields, Diagnostic)
end

function diag.throw(fields)
  error(diag.new(fields), 0)
end

function diag.is(value)
  return type(value) == "table" and getmetatable(value) == Diagnostic
end

-- True if an error value says that a step has used up its time or memory. Core raises that error
-- and handles it; Lua code that catches it has to raise it again.
function diag.is_budget(value)
  return type(value) == "string" and find(value, "^loam%-budget: ") ~= nil
end

-- Most policies have no fault, so diag_text.lua is loaded only when one of its functions is called.
-- The step's budget can end while it loads; it is then loaded from the start at the next call.
local function from_diag_text(_, name)
  local ok, diag_text = pcall(require, "loam.report.diag_text")
  if ok then return diag_text[name] end
  package.loaded["loam.report.diag_text"] = nil
  return error(diag_text, 0)
end

return setmetatable(diag, { __index = from_diag_text })
