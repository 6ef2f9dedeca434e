-- svg_text.lua - text in a picture: safe in XML, and short enough for its place.

local json = require("loam.report.json")

local svg_text = {}

local ESCAPES = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;" }

-- Returns a text for XML: in UTF-8, without the characters that XML forbids.
---@return string
function svg_text.escape(text)
  local safe = json.repaired(text):gsub("[%z\1-\8\11\12\14-\31\127]", "\239\191\189")
  safe = safe:gsub("\239\191[\190\191]", "\239\191\189")
  return (safe:gsub('[&<>"]', ESCAPES))
end

-- Widths of characters as a part of the size of the font. They are those of DejaVu Sans, which is
-- wider than the other fonts that browsers use, so a text never needs more than its estimate.
local NARROW, WIDE = "[iljtfrI.,:;'|!()%[%]{}/\\ %-]", "[mwMW@%%%+&<>=]"
local NARROW_WIDTH, USUAL_WIDTH, CAPITAL_WIDTH, WIDE_WIDTH = 0.40, 0.635, 0.73, 0.98

local function width_of(character)
  if #character > 1 then return #character == 2 and CAPITAL_WIDTH or 1 end
  if character:find(NARROW) then return NARROW_WIDTH end
  if character:find(WIDE) then return WIDE_WIDTH end
  return character:find("%u") and CAPITAL_WIDTH or USUAL_WIDTH
end

local CHARACTER = "[%z\1-\127\194-\244][\128-\191]*"

-- Returns how wide a text is at most, for a size of the font.
---@return number
function svg_text.width(text, size)
  local sum = 0
  for character in text:gmatch(CHARACTER) do sum = sum + width_of(character) end
  return sum * size
end

local ELLIPSIS, LEAST = "\226\128\166", 2

-- Returns as much of a text as fits into a width. A text that is cut ends in an ellipsis. Returns
-- an empty text if fewer than two characters would be left.
---@return string
function svg_text.fit(text, size, room)
  text = json.repaired(text)
  if svg_text.width(text, size) <= room then return text end
  local out, sum = {}, size
  for character in text:gmatch(CHARACTER) do
    sum = sum + width_of(character) * size
    if sum > room then break end
    out[#out + 1] = character
  end
  return #out >= LEAST and table.concat(out) .. ELLIPSIS or ""
end

return svg_text
