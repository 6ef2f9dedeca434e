-- here - where the policy is at this moment: its running line, and refusing from there.
--
-- Metamethods and library functions run below the policy's own frames. What they refuse names the
-- line of the nearest policy frame.

local diag = require("loam.diag")

local here = {
  CHUNK = "=policy", -- the chunk name of every policy; messages carry the file's own name
}

local getinfo = debug.getinfo
local library = string
local metatable = getmetatable("")

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
    if info.source == here.CHUNK then return info.currentline end
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

-- The same for the fields of a diagnostic that lacks its line.
function here.throw(fields)
  return here.refuse(fields.class, fields.reason, fields.suggestion)
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
