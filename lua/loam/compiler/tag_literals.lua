-- tag_literals.lua - tags that a policy's questions name, so that a load can compile for them.
--
-- `req.tag:under("tensor")` shows that tags under "tensor" may be treated differently. A policy is
-- compiled for such tags when it is loaded, not only when a program first uses one of them.

local tag_literals = {}

local MAX_TAGS = 256
local MAX_TAG = 255 -- bytes
local FILLER = "x"

local function parts_of(tag)
  local parts = {}
  for part in string.gmatch(tag, "[^.]+") do parts[#parts + 1] = part end
  return parts
end

-- Returns `tag` with `word` as its part number `index`, made longer if it has fewer parts; nil if
-- such a tag would be too long.
local function with_part(tag, index, word)
  if index > MAX_TAG then return nil end
  local parts = parts_of(tag)
  for i = #parts + 1, index do parts[i] = FILLER end
  parts[index] = word or parts[index]
  return table.concat(parts, ".")
end

local WORDS = {} -- name of a question -> function(about) that returns words with the answer yes

function WORDS.is(about) return { about } end
function WORDS.under(about) return { about, about .. "." .. FILLER } end
function WORDS.glob(about) return { (string.gsub(about, "[*?]", FILLER)) } end

function WORDS.key(about)
  local words = {}
  for key in next, about do
    if type(key) == "string" then words[#words + 1] = key end
  end
  table.sort(words)
  return words
end

function tag_literals.new()
  return { list = {}, seen = {} }
end

local function add(set, tag)
  if not tag or #tag > MAX_TAG or set.seen[tag] or #set.list >= MAX_TAGS then return end
  set.seen[tag] = true
  set.list[#set.list + 1] = tag
end

-- Adds the tags that are named by the observations of a site with `tag` (site.asked).
function tag_literals.add(set, tag, asked)
  for i = 1, #asked, 2 do
    local literal = asked[i].literal
    if literal and literal.how == "part" then
      add(set, with_part(tag, literal.about, nil))
    elseif literal then
      for _, word in ipairs(WORDS[literal.how](literal.about)) do
        add(set, literal.part and with_part(tag, literal.part, word) or word)
      end
    end
  end
end

return tag_literals
