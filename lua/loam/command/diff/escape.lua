-- escape.lua - text of any bytes, made safe for a terminal, a shell and Markdown.

local json = require("loam.report.json")
local terminal = require("loam.command.terminal")

local escape = {}

local function is_utf8(text)
  return json.repaired(text) == text
end

local function escaped(text)
  return (text:gsub("[%c\127-\255]", function(c) return ("\\x%02x"):format(c:byte()) end))
end

---@return string one line without control characters, in UTF-8
function escape.text(text)
  return is_utf8(text) and terminal.plain(text) or escaped(text)
end

---@return string the bytes of a text in hexadecimal
function escape.hex(text)
  return (text:gsub(".", function(c) return ("%02x"):format(c:byte()) end))
end

---@return string the text as one word of a shell
function escape.shell(text)
  if text:find("^[%w._/@%%+:,-]+$") then return text end
  if is_utf8(text) and not text:find("[%c\127']") then return "'" .. text .. "'" end
  return "$'" .. escaped((text:gsub("[\\']", "\\%0"))) .. "'"
end

-- Returns the text of a cell of a table in Markdown: nothing in it is markup.
function escape.cell(text)
  if text:find("^`+ ?") then return text end
  return (escape.text(text):gsub("[\\|*_`<>%[%]#~&]", "\\%0"))
end

-- Returns the text as code in a cell of a table.
function escape.code(text)
  local longest = 0
  for run in text:gmatch("`+") do longest = math.max(longest, #run) end
  local fence = ("`"):rep(longest + 1)
  local pad = longest > 0 and " " or ""
  return fence .. pad .. text:gsub("|", "\\|") .. pad .. fence
end

return escape
