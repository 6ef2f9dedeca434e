-- literals - tags that a policy's own questions name, so that a load can try them.
--
-- `req.tag:under("tensor")` says that tags under "tensor" may be treated differently: a policy is
-- compiled for such tags when it is loaded, not when the first of them is seen.

local literals = {}

local MAX_TAGS = 256
local MAX_TAG = 255 -- bytes
local FILLER = "x"

local function parts_of(tag)
  local parts = {}
  for part in string.gmatch(tag, "[^.]+") do parts[#parts + 1] = part end
  return parts
end

-- `tag` with its part `index` replaced, and made long enough to have one; nil if no tag is.
local function with_part(tag, index, word)
  if index > MAX_TAG then return nil end
  local parts = parts_of(tag)
  for i = #parts + 1, index do parts[i] = FILLER end
  parts[index] = word or parts[index]
  return table.concat(parts, ".")
end

local WORDS = {} -- how -> function(about) -> words that answer the question with yes

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

function literals.new()
  return { list = {}, seen = {} }
end

local function add(set, tag)
  if not tag or #tag > MAX_TAG or set.seen[tag] or #set.list >= MAX_TAGS then return end
  set.seen[tag] = true
  set.list[#set.list + 1] = tag
end

-- Adds what the observations asked about `tag` name (site.asked).
function literals.add(set, tag, asked)
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

return literals
