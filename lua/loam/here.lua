-- here - where the policy is at this moment: its running line, and refusing from there.
--
-- Metamethods and library functions run below the policy's own frames. What they refuse names the
-- line of the nearest policy frame.

local diag = require("loam.diag")

local here = {}

local getinfo = debug.getinfo
local library = string
local metatable = getmetatable("")

-- The chunk name of the policy, which is its file's name. LuaJIT's messages begin with a shortened
-- form of it, which may itself hold colons.
local chunk, short

function here.open(file_name)
  chunk = "@" .. file_name
  short = debug.getinfo(load("", chunk), "S").short_src
end

function here.chunk() return chunk end

-- An error that trusted code caught, as a diagnostic.
function here.diagnose(problem)
  if type(problem) == "string" and string.sub(problem, 1, #short + 1) == short .. ":" then
    problem = "policy" .. string.sub(problem, #short + 1)
  end
  return diag.from_error(problem)
end

---@return boolean the error ends the step, and only core may handle it
function here.is_final(problem)
  return diag.is_budget(problem) or problem == "not enough memory"
end

-- While a policy runs, methods of strings are those of the sandbox.
function here.enter(methods)
  metatable.__index = methods
end

function here.leave()
  metatable.__index = library
end

---@return integer|nil line of the innermost policy frame
function here.line()
  for level = 2, 250 do
    local info = getinfo(level, "Sl")
    if not info then return nil end
    if info.source == chunk then return info.currentline end
  end
  return nil
end

-- Raises a diagnostic at the policy's line. Nothing in a policy can catch it, so the policy's view
-- of strings ends here.
function here.refuse(class, reason, suggestion, line)
  line = line or here.line()
  here.leave()
  return diag.throw { line = line, class = class, reason = reason, suggestion = suggestion }
end

-- The same for a word that is not in `known`: suggests the nearest, else lists them.
function here.refuse_word(class, reason, word, known)
  local line = here.line()
  here.leave()
  local nearest = type(word) == "string" and diag.suggest(word, known) or nil
  local suggestion = nearest and "did you mean '" .. nearest .. "'?"
    or "possible: " .. table.concat(known, ", ")
  return here.refuse(class, reason, suggestion, line)
end

return here
