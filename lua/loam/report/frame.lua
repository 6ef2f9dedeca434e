-- frame.lua - the line that the policy is running, and diagnostics raised for that line.
--
-- A policy calls metamethods and library functions, which run in stack frames of their own. If they
-- refuse a value, the diagnostic names the line of the nearest frame of the policy.

local diag = require("loam.report.diag")

local frame = {}

local getinfo = debug.getinfo
local library = string
local metatable = getmetatable("")

-- `chunk` is the policy's chunk name: "@" and the name of its file. `short` is LuaJIT's shortened
-- form of that name, with which its messages begin; it may contain colons.
local chunk, short

function frame.open(file_name)
  chunk = "@" .. file_name
  short = debug.getinfo(load("", chunk), "S").short_src
end

function frame.chunk() return chunk end

---@return boolean whether a function stands in the policy file
function frame.is_own(f) return getinfo(f, "S").source == chunk end

-- Makes a diagnostic from an error value that trusted code caught.
function frame.diagnose(problem)
  if type(problem) == "string" and string.sub(problem, 1, #short + 1) == short .. ":" then
    problem = "policy" .. string.sub(problem, #short + 1)
  end
  return diag.from_error(problem)
end

---@return boolean whether the error ends the step (time or memory), so that only core handles it
function frame.is_final(problem)
  return diag.is_budget(problem) or problem == "not enough memory"
end

-- Gives all strings the sandbox's methods while a policy runs, until frame.leave.
function frame.enter(methods)
  metatable.__index = methods
end

function frame.leave()
  metatable.__index = library
end

local lines -- by line of the chunk that runs: line of the policy; nil: the chunk is the policy's

-- Notes that a chunk runs whose lines are those of spread.lua; nil: the policy itself runs.
function frame.spread(lines_of_spread) lines = lines_of_spread end

---@return integer|nil line of the innermost policy frame
function frame.line()
  for level = 2, 250 do
    local info = getinfo(level, "Sl")
    if not info then return nil end
    if info.source == chunk then return lines and lines[info.currentline] or info.currentline end
  end
  return nil
end

-- Raises a diagnostic at `line`, or at the policy's running line if that is nil. A policy cannot
-- catch it, so strings get Lua's own methods back at this point.
function frame.refuse(class, reason, suggestion, line)
  line = line or frame.line()
  frame.leave()
  return diag.throw { line = line, class = class, reason = reason, suggestion = suggestion }
end

-- Raises a diagnostic about a word that is not in the list `known`. It suggests the nearest word of
-- the list, or shows the whole list if no word is near.
function frame.refuse_word(class, reason, word, known)
  local line = frame.line()
  frame.leave()
  local nearest = type(word) == "string" and diag.suggest(word, known) or nil
  local suggestion = nearest and "did you mean '" .. nearest .. "'?"
    or "possible: " .. table.concat(known, ", ")
  return frame.refuse(class, reason, suggestion, line)
end

return frame
