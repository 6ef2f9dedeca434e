-- json.lua - JSON text from Lua values and back (RFC 8259).
--
-- Keys are written in a stable order, so that two runs can be compared. A table is written as an
-- array when json.array made it or when its keys are 1..n; an empty table is written as an object.

local concat, sort = table.concat, table.sort
local byte, char, find, format = string.byte, string.char, string.find, string.format
local gsub, match, sub = string.gsub, string.match, string.sub

local json = {}

-- The number of the format of all answers in JSON: their member `version`. A format that gets more
-- members keeps its number. It gets another number if a member is removed or has another type.
json.FORMAT = 1

local MAX_DEPTH = 100

local Array = {}

---@return table `items` itself, which is written as an array even when it is empty
function json.array(items)
  return setmetatable(items, Array)
end

json.null = setmetatable({}, { __tostring = function() return "null" end })

-- ---- encode

local ESCAPES = {
  ["\""] = "\\\"", ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t",
}

local function escape(c)
  return ESCAPES[c] or format("\\u%04x", byte(c))
end

-- Returns the character with a number, in UTF-8.
local function utf8(code)
  if code < 0x80 then return char(code) end
  if code < 0x800 then return char(0xc0 + math.floor(code / 0x40), 0x80 + code % 0x40) end
  local low = char(0x80 + math.floor(code / 0x40) % 0x40, 0x80 + code % 0x40)
  if code < 0x10000 then return char(0xe0 + math.floor(code / 0x1000)) .. low end
  return char(0xf0 + math.floor(code / 0x40000), 0x80 + math.floor(code / 0x1000) % 0x40) .. low
end

-- Patterns of well-formed UTF-8 sequences of two to four bytes, and their lengths.
local SEQUENCES = {
  { "^[\194-\223][\128-\191]", 2 },
  { "^\224[\160-\191][\128-\191]", 3 },
  { "^[\225-\236\238\239][\128-\191][\128-\191]", 3 },
  { "^\237[\128-\159][\128-\191]", 3 },
  { "^\240[\144-\191][\128-\191][\128-\191]", 4 },
  { "^[\241-\243][\128-\191][\128-\191][\128-\191]", 4 },
  { "^\244[\128-\143][\128-\191][\128-\191]", 4 },
}

local function sequence_at(text, at)
  for _, entry in ipairs(SEQUENCES) do
    if find(text, entry[1], at) then return entry[2] end
  end
  return nil
end

-- Returns a text in which each byte that is no UTF-8 became the character with that number, as in
-- script/json.c: tags may hold any byte.
---@param text string
---@return string
function json.repaired(text)
  local out, at = {}, 1
  while at <= #text do
    local from = find(text, "[\128-\255]", at)
    if not from then break end
    out[#out + 1] = sub(text, at, from - 1)
    local length = sequence_at(text, from)
    out[#out + 1] = length and sub(text, from, from + length - 1) or utf8(byte(text, from))
    at = from + (length or 1)
  end
  out[#out + 1] = sub(text, at)
  return concat(out)
end

-- Returns a text in quotes. Control characters up to U+009F, which terminals obey, are escaped.
local function string_text(text)
  if find(text, "[\128-\255]") then text = json.repaired(text) end
  text = gsub(text, '[%c"\\\127]', escape)
  return '"' .. gsub(text, "\194([\128-\159])", escape) .. '"'
end

-- JSON has neither NaN nor infinity: null says "no such number".
local function number_text(n)
  if n ~= n or n == math.huge or n == -math.huge then return "null" end
  if n == math.floor(n) and n >= -2 ^ 53 and n <= 2 ^ 53 then return format("%d", n) end
  local short = format("%.14g", n)
  return tonumber(short) == n and short or format("%.17g", n)
end

local function is_array(t)
  if getmetatable(t) == Array then return true end
  local n = #t
  if n == 0 then return false end
  for key in next, t do
    if type(key) ~= "number" or key < 1 or key > n or key ~= math.floor(key) then return false end
  end
  return true
end

-- Keys of `order` first, in its order; the others follow sorted.
local function sorted_keys(t, rank)
  local keys = {}
  for key in next, t do
    assert(type(key) == "string", "json: a key is not a string")
    keys[#keys + 1] = key
  end
  sort(keys, function(a, b)
    local ra, rb = rank[a] or math.huge, rank[b] or math.huge
    if ra ~= rb then return ra < rb end
    return a < b
  end)
  return keys
end

local MOST_PARTS = 1000 -- parts that wait to be written

-- Writes the parts that wait, if there are more than `most`.
local function flush(out, most)
  if #out <= most then return end
  out.write(concat(out))
  for i = #out, 1, -1 do out[i] = nil end
end

local add

local function add_array(out, t, rank, depth)
  out[#out + 1] = "["
  for i = 1, #t do
    if i > 1 then out[#out + 1] = "," end
    add(out, t[i], rank, depth)
    flush(out, MOST_PARTS)
  end
  out[#out + 1] = "]"
end

-- Writes an array of the items with which `each` calls its argument.
local function add_each(out, each, rank, depth)
  local separator = ""
  out[#out + 1] = "["
  each(function(item)
    out[#out + 1] = separator
    separator = ","
    add(out, item, rank, depth)
    flush(out, MOST_PARTS)
  end)
  out[#out + 1] = "]"
end

local function add_object(out, t, rank, depth)
  out[#out + 1] = "{"
  for i, key in ipairs(sorted_keys(t, rank)) do
    if i > 1 then out[#out + 1] = "," end
    out[#out + 1] = string_text(key)
    out[#out + 1] = ":"
    add(out, t[key], rank, depth)
    flush(out, MOST_PARTS)
  end
  out[#out + 1] = "}"
end

function add(out, value, rank, depth)
  local kind = type(value)
  if value == json.null or kind == "nil" then
    out[#out + 1] = "null"
  elseif kind == "string" then
    out[#out + 1] = string_text(value)
  elseif kind == "number" then
    out[#out + 1] = number_text(value)
  elseif kind == "boolean" then
    out[#out + 1] = tostring(value)
  elseif kind == "table" then
    assert(depth < MAX_DEPTH, "json: nested too deeply")
    return (is_array(value) and add_array or add_object)(out, value, rank, depth + 1)
  elseif kind == "function" then
    return add_each(out, value, rank, depth + 1)
  else
    error("json: a " .. kind .. " has no JSON form")
  end
end

-- Encodes a value. Calls `write` with the text, piece by piece, so that a large value needs little
-- memory. A function is encoded as an array: it is called with a function, which it calls with each
-- item. So the items need not be there at one time.
---@param order string[] keys that come first, at every level
---@param write fun(piece: string)
function json.write(value, order, write)
  local rank = {}
  for i, key in ipairs(order) do rank[key] = i end
  local out = { write = write }
  add(out, value, rank, 0)
  flush(out, 0)
end

---@param order string[]|nil keys that come first, at every level
---@return string
function json.encode(value, order)
  local pieces = {}
  json.write(value, order or {}, function(piece) pieces[#pieces + 1] = piece end)
  return concat(pieces)
end

-- ---- decode

local function fail(at, what)
  error({ at = at, what = what }, 0)
end

local SPACE = 32 -- the byte; all other white space of JSON is below it

local function skip(text, at)
  if (byte(text, at) or 0) > SPACE then return at end
  return match(text, "^[ \t\r\n]*()", at)
end

local UNESCAPES = {
  ['"'] = '"', ["\\"] = "\\", ["/"] = "/", b = "\b", f = "\f", n = "\n", r = "\r", t = "\t",
}

-- Reads `\uXXXX` at `at`. Returns its character and the position after it; a surrogate pair is one
-- character.
local function unicode(text, at)
  local high = tonumber(match(text, "^\\u(%x%x%x%x)", at) or fail(at, "a bad \\u escape"), 16)
  if high < 0xd800 or high > 0xdfff then return utf8(high), at + 6 end
  local low = tonumber(match(text, "^\\u(%x%x%x%x)", at + 6) or "0", 16)
  if high > 0xdbff or low < 0xdc00 or low > 0xdfff then return "\239\191\189", at + 6 end
  return utf8(0x10000 + (high - 0xd800) * 0x400 + low - 0xdc00), at + 12
end

-- Reads a string that has escapes.
local function read_escaped(text, at)
  local out, from = {}, at + 1
  while true do
    local stop = find(text, '[%c"\\]', from) or fail(at, "a string without end")
    out[#out + 1] = sub(text, from, stop - 1)
    local c = sub(text, stop, stop)
    if c == '"' then return concat(out), stop + 1 end
    if c ~= "\\" then
      if byte(c) ~= 127 then fail(stop, "a control character in a string") end
      out[#out + 1], from = c, stop + 1
    elseif sub(text, stop + 1, stop + 1) == "u" then
      out[#out + 1], from = unicode(text, stop)
    else
      out[#out + 1] = UNESCAPES[sub(text, stop + 1, stop + 1)] or fail(stop, "an unknown escape")
      from = stop + 2
    end
  end
end

local function read_string(text, at)
  local plain, stop = match(text, '^"([^%c"\\]*)"()', at)
  if plain then return plain, stop end
  return read_escaped(text, at)
end

local read

local function read_array(text, at, depth)
  local items = json.array {}
  at = skip(text, at + 1)
  if sub(text, at, at) == "]" then return items, at + 1 end
  while true do
    local value
    value, at = read(text, at, depth)
    items[#items + 1] = value
    at = skip(text, at)
    local c = sub(text, at, at)
    if c == "]" then return items, at + 1 end
    if c ~= "," then fail(at, "',' or ']' expected") end
    at = at + 1
  end
end

local function read_member(text, at, depth)
  at = skip(text, at)
  if sub(text, at, at) ~= '"' then fail(at, "a key expected") end
  local key, value
  key, at = read_string(text, at)
  at = skip(text, at)
  if sub(text, at, at) ~= ":" then fail(at, "':' expected") end
  value, at = read(text, at + 1, depth)
  return key, value, skip(text, at)
end

-- A member that is null is left out, so that `if answer.error` is false for it.
local function read_object(text, at, depth)
  local object = {}
  at = skip(text, at + 1)
  if sub(text, at, at) == "}" then return object, at + 1 end
  while true do
    local key, value
    key, value, at = read_member(text, at, depth)
    if value ~= json.null then object[key] = value end
    local c = sub(text, at, at)
    if c == "}" then return object, at + 1 end
    if c ~= "," then fail(at, "',' or '}' expected") end
    at = at + 1
  end
end

local function read_number(text, at)
  local stop = match(text, "^-?%d+()", at) or fail(at, "a value expected")
  if find(text, "^[.eE]", stop) then
    stop = match(text, "^%.%d+()", stop) or stop
    stop = match(text, "^[eE][+-]?%d+()", stop) or stop
  end
  return tonumber(sub(text, at, stop - 1)), stop
end

local WORDS = { ["true"] = true, ["false"] = false, null = json.null }

function read(text, at, depth)
  at = skip(text, at)
  if depth >= MAX_DEPTH then fail(at, "nested too deeply") end
  local c = sub(text, at, at)
  if c == "{" then return read_object(text, at, depth + 1) end
  if c == "[" then return read_array(text, at, depth + 1) end
  if c == '"' then return read_string(text, at) end
  local word, stop = match(text, "^(%a+)()", at)
  if word == nil then return read_number(text, at) end
  if WORDS[word] == nil then fail(at, "a value expected") end
  return WORDS[word], stop
end

---@return any|nil value nil if the text is not JSON
---@return string|nil message
function json.decode(text)
  local ok, value, at = pcall(read, text, 1, 0)
  if ok then
    at = skip(text, at)
    if at > #text then return value end
    value = { at = at, what = "more text after the value" }
  end
  if type(value) ~= "table" then error(value, 0) end
  return nil, format("not JSON at byte %d: %s", value.at, value.what)
end

return json
