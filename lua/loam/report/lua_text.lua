-- lua_text.lua - strings as a policy writes them.

local lua_text = {}

-- Returns a text as a string of Lua on one line, such as "a\nb". The format %q alone writes the end
-- of a line as a backslash and the end of a line.
---@return string
function lua_text.quoted(text)
  return (string.gsub(string.format("%q", text), "\\\n", "\\n"))
end

return lua_text
