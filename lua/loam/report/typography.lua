-- typography.lua - characters that text processors and web pages put in place of those of Lua.
--
-- Lua takes each byte of such a character for a letter, so the parser names another fault, or a
-- name that does not exist. Several of these characters cannot be seen.

local typography = {}

-- UTF-8 of a character, its code, and what to write for it; nil: nothing.
local CHARACTERS = {
  { "\226\128\156", "201C", '"' }, { "\226\128\157", "201D", '"' },
  { "\226\128\158", "201E", '"' }, { "\194\171", "00AB", '"' }, { "\194\187", "00BB", '"' },
  { "\226\128\152", "2018", "'" }, { "\226\128\153", "2019", "'" }, { "\194\180", "00B4", "'" },
  { "\226\128\147", "2013", "-" }, { "\226\128\148", "2014", "-" },
  { "\226\136\146", "2212", "-" }, { "\226\137\164", "2264", "<=" },
  { "\226\137\165", "2265", ">=" }, { "\226\137\160", "2260", "~=" },
  { "\194\160", "00A0", " " }, { "\226\128\175", "202F", " " }, { "\226\128\137", "2009", " " },
  { "\227\128\128", "3000", " " },
  { "\226\128\139", "200B" }, { "\226\128\141", "200D" }, { "\239\187\191", "FEFF" },
}

---@param text string a name, or a line without its strings
---@return string|nil what to write in place of the first such character of a text
function typography.advise(text)
  local first, found
  for _, character in ipairs(CHARACTERS) do
    local at = string.find(text, character[1], 1, true)
    if at and at < (first or math.huge) then first, found = at, character end
  end
  if not found then return nil end
  local code, instead = "the character U+" .. found[2], found[3]
  if not instead then return "remove " .. code .. ", which is not shown" end
  if instead == " " then return "write a blank in place of " .. code end
  return "write " .. instead .. " in place of " .. found[1]
end

return typography
