-- terminal.lua - output for people: tables, lists, colour on terminals, faults of policies.

local diag = require("loam.report.diag")

local terminal = {}

local CODES = { bold = "1", dim = "2", red = "31", green = "32", yellow = "33", cyan = "36" }

---@param coloured boolean
---@return fun(colour: string, text: string): string
function terminal.painter(coloured)
  if not coloured then return function(_, text) return text end end
  return function(colour, text) return "\27[" .. CODES[colour] .. "m" .. text .. "\27[0m" end
end

-- The columns that a text takes on a terminal: continuation bytes of UTF-8 take none.
local function width(text)
  return #text:gsub("[\128-\191]", "")
end

terminal.width = width

-- Returns the first `columns` characters of a text that is safe to show.
function terminal.cut(text, columns)
  if width(text) <= columns then return text end
  local out, n = {}, 0
  for c in text:gmatch("[%z\1-\127\192-\255][\128-\191]*") do
    if n == columns then break end
    n = n + 1
    out[n] = c
  end
  return table.concat(out)
end

-- Returns a text of at most so many characters. A text that is cut ends with "~".
function terminal.shortened(text, columns)
  return width(text) > columns and terminal.cut(text, columns - 1) .. "~" or text
end

local function escaped(bytes)
  return (bytes:gsub(".", function(c) return ("\\%03d"):format(c:byte()) end))
end

-- The forms of a character of UTF-8, by its first byte. Left out are the control characters U+0080
-- to U+009F, which terminals obey, and those of U+2028 to U+202E and U+2060 to U+206F, which break
-- lines or turn the direction of the text around.
local function is_shown(sequence)
  local a, b, c = sequence:byte(1, 3)
  if #sequence == 2 then return a >= 0xc2 and a < 0xe0 and not (a == 0xc2 and b < 0xa0) end
  if #sequence == 3 then
    if a == 0xe2 and (b == 0x80 and c >= 0xa8 and c <= 0xae or b == 0x81 and c >= 0xa0
      and c <= 0xaf) then return false end
    return a >= 0xe0 and a < 0xf0 and not (a == 0xe0 and b < 0xa0) and not (a == 0xed and b > 0x9f)
  end
  return #sequence == 4 and a >= 0xf0 and a < 0xf5 and not (a == 0xf0 and b < 0x90)
    and not (a == 0xf4 and b > 0x8f)
end

-- Makes text from another program or a file safe to show: one line without control characters and
-- without bytes that are not UTF-8. A byte that is not shown stands as its number, such as \027.
function terminal.plain(text)
  if not text:find("[%c\127-\255]") then return text end
  return (text:gsub("[%c\127]", escaped):gsub("[\128-\255][\128-\191]*", function(sequence)
    return not is_shown(sequence) and escaped(sequence) or nil
  end))
end

-- Makes a text of several lines safe to show. Its line ends and tabs stay.
function terminal.plain_lines(text)
  return (text:gsub("[^\n\t]+", terminal.plain))
end

-- Fills a text up with spaces, on its right or, if `right` is set, on its left.
local function padded(text, columns, right)
  local space = (" "):rep(columns - width(text))
  return right and space .. text or text .. space
end

terminal.padded = padded

-- Returns a text without the spaces at its end. The pattern is matched from the end: to look for
-- spaces from the start takes the square of the length of each run of spaces.
function terminal.trimmed(text)
  return text:match("^.*%S") or ""
end

local function widths(rows)
  local columns = {}
  for _, row in ipairs(rows) do
    for i, cell in ipairs(row) do
      columns[i] = math.max(columns[i] or 0, width(terminal.plain(cell)))
    end
  end
  return columns
end

-- Lays out rows of strings, made safe to show. The first row is the heading; `right` has the
-- columns that are aligned to the right.
---@param rows string[][]
---@param right table<integer, boolean>|nil
---@return string text ending in a newline
function terminal.table(rows, right, paint)
  local columns, out = widths(rows), {}
  for n, row in ipairs(rows) do
    local cells = {}
    for i, cell in ipairs(row) do
      cells[i] = padded(terminal.plain(cell), columns[i], right and right[i])
    end
    local line = terminal.trimmed(table.concat(cells, "  "))
    out[n] = n == 1 and paint and paint("bold", line) or line
  end
  return table.concat(out, "\n") .. "\n"
end

-- Lays out pairs of a name and a value, one pair a line.
---@param pairs_list string[][]
function terminal.list(pairs_list, paint)
  local column, out = 0, {}
  for _, entry in ipairs(pairs_list) do column = math.max(column, width(entry[1])) end
  for i, entry in ipairs(pairs_list) do
    local value = entry[2]:gsub("\n", "\n" .. (" "):rep(column + 2))
    out[i] = paint("bold", padded(entry[1], column)) .. "  " .. value
  end
  return table.concat(out, "\n") .. "\n"
end

local function paint_line(line, paint, colour)
  local at, class, rest = line:match("^([^ ][^:]*:%d*:?) (%l+): (.*)$")
  if at then return paint("bold", at) .. " " .. paint(colour, class .. ":") .. " " .. rest end
  local hint = line:match("^  hint: (.*)$")
  if hint then return "  " .. paint("cyan", "hint:") .. " " .. hint end
  local number, source = line:match("^(%s*%d+ | )(.*)$")
  if number then return paint("dim", number) .. source end
  return line
end

-- Lays out the errors of a JSON answer (diag.object) in the form that compilers print.
---@param word string|nil a word before each entry, such as "warning"
---@return string text ending in a newline
function terminal.faults(errors, paint, colour, word)
  local list = {}
  for i, e in ipairs(errors) do
    list[i] = diag.new(e)
    if word then list[i].class = word .. ": " .. list[i].class end
  end
  local out = {}
  for line in (diag.render(list) .. "\n"):gmatch("(.-)\n") do
    out[#out + 1] = paint_line(line, paint, colour or "red")
  end
  return table.concat(out, "\n") .. "\n"
end

return terminal
