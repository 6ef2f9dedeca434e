-- spread.lua - the text of a policy with each word on a line of its own.
--
-- Lua tells on which line a function runs, and not at which instruction. In the spread text every
-- call, comparison and look-up ends on a line of its own, so that the line names the instruction.

local source = require("loam.language.source")

local spread = {}

local find, sub = string.find, string.sub

-- Characters before which a line may end. A line may not end before "(": Lua would refuse the call.
local ALONE = { [")"] = true, ["{"] = true, ["}"] = true, ["["] = true, ["]"] = true }

-- A word. Lua takes every byte above 127 for a letter.
local WORD = "^[%a_\128-\255][%w_\128-\255]*"

-- Returns the last byte of the number that begins at `at`, or nil.
local function number_end(text, at)
  local _, last = find(text, "^%.?%d[%w_.]*", at)
  while last and find(text, "^[eEpP][+-]", last) do
    _, last = find(text, "^[+-][%w_.]*", last + 1)
  end
  return last
end

-- Returns the text in pieces, and the line of each line of the spread text.
---@param text string a text that Lua accepts
---@return string, integer[] the spread text; by its line: the line in `text`
function spread.run(text)
  text = string.gsub(text, "^\239\187\191", "") -- a byte order mark
  local at, line = find(text, "^#") and find(text, "[\r\n]") or 1, 1
  local out, lines = {}, { 1 }
  local function pass(to)
    local _, n = string.gsub(sub(text, at, to), "\n", "")
    at, line = to + 1, line + n
  end
  local function write(piece, has_own_line)
    if has_own_line then out[#out + 1], lines[#lines + 1] = "\n", line end
    out[#out + 1] = piece
    local _, n = string.gsub(piece, "\n", "")
    for i = 1, n do lines[#lines + 1] = line + i end
  end
  while at <= #text do
    local first, last = at, source.comment_or_string_end(text, at)
    if last then
      if sub(text, at, at + 1) == "--" then write(" ") else write(sub(text, at, last), true) end
    else
      last = select(2, find(text, "^%s+", at)) or select(2, find(text, WORD, at))
        or number_end(text, at) or at
      local piece = sub(text, first, last)
      local is_space = find(piece, "^%s")
      local has_own_line = ALONE[piece] or find(piece, "^%d") or find(piece, WORD)
      write(is_space and " " or piece, has_own_line)
    end
    pass(last)
  end
  return table.concat(out) .. "\n", lines
end

return spread
