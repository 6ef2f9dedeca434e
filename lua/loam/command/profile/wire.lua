-- wire.lua - the encoding of Protocol Buffers: messages of numbered fields.
--
-- https://protobuf.dev/programming-guides/encoding. The command has no library of bit operations,
-- so numbers are cut by division.

local wire = {}

local byte, char, concat, floor, sub = string.byte, string.char, table.concat, math.floor,
  string.sub

local VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

-- ---- writing

-- Returns a number that is 128 or more, or negative, as a varint. A negative number has the bits of
-- its two's complement of 64 bits.
local function long_varint(n)
  local low, high = n % 2 ^ 32, floor(n / 2 ^ 32) % 2 ^ 32
  local out, at = {}, 0
  while high > 0 or low >= 128 do
    at = at + 1
    out[at] = char(low % 128 + 128)
    low = floor(low / 128) + high % 128 * 2 ^ 25
    high = floor(high / 128)
  end
  out[at + 1] = char(low)
  return concat(out)
end

-- Returns an integer as a varint.
---@param n number from -2^63 to 2^64
---@return string
local function varint(n)
  if n >= 0 and n < 128 then return char(n) end
  return long_varint(n)
end

-- Returns a field with an integer. A field with the value 0 is left out, since 0 is the default.
---@param n number|boolean|nil
---@return string
function wire.number(field, n)
  if n == true then n = 1 end
  if not n or n == 0 then return "" end
  return varint(field * 8 + VARINT) .. varint(n)
end

-- Returns a field with bytes: a text or a message. Empty bytes are written.
---@return string
function wire.bytes(field, text)
  return varint(field * 8 + BYTES) .. varint(#text) .. text
end

-- Returns a field with a list of integers.
---@param list number[]
---@return string
function wire.packed(field, list)
  local out = {}
  for i, n in ipairs(list) do out[i] = varint(n) end
  return #out > 0 and wire.bytes(field, concat(out)) or ""
end

-- ---- reading

-- Raises an error for bytes that are no message.
local function broken(words)
  error({ wire = words }, 0)
end

-- Reads the varint at `at`. Its bytes have seven bits of the number each, the lowest first. Four
-- bytes are summed to one part, since a double holds 28 bits times any power of two exactly. The
-- highest part has the sign.
local function read_varint(text, at, stop)
  local first = byte(text, at)
  if first and first < 128 and at <= stop then return first, at + 1 end
  local parts, scale, b = { 0, 0, 0 }, 1, 128
  for count = 0, 9 do
    local part = floor(count / 4) + 1
    b = at <= stop and byte(text, at) or broken("a number is cut off")
    if count % 4 == 0 then scale = 1 end
    parts[part] = parts[part] + b % 128 * scale
    scale, at = scale * 128, at + 1
    if b < 128 then break end
  end
  if b >= 128 then broken("a number has more than 64 bits") end
  local high = parts[3] % 256
  return (high >= 128 and high - 256 or high) * 2 ^ 56 + parts[2] * 2 ^ 28 + parts[1], at
end

-- Reads the field at `at`. Returns its number, its value, the position after it, and whether the
-- value is bytes. The value of a field of a fixed width is nil.
local function read_field(text, at, stop)
  local key, value
  key, at = read_varint(text, at, stop)
  local field, kind = floor(key / 8), key % 8
  if field < 1 then broken("a field has the number 0") end
  if kind == VARINT then
    value, at = read_varint(text, at, stop)
    return field, value, at, false
  end
  local length = kind == FIXED64 and 8 or kind == FIXED32 and 4
  if kind == BYTES then length, at = read_varint(text, at, stop) end
  if not length then broken("a field has an unknown type") end
  if length < 0 or length > stop - at + 1 then broken("a field is cut off") end
  value = kind == BYTES and sub(text, at, at + length - 1) or nil
  return field, value, at + length, kind == BYTES
end

-- Calls visit(field, value, is_bytes) for each field of a message, in their order. The value of a
-- field of a fixed width is nil. Raises { wire = words } if the bytes are no message.
---@param text string
---@param visit fun(field: integer, value: number|string|nil, is_bytes: boolean)
function wire.each(text, visit)
  local at, stop = 1, #text
  while at <= stop do
    local field, value, is_bytes
    field, value, at, is_bytes = read_field(text, at, stop)
    visit(field, value, is_bytes)
  end
end

-- Appends to `list` the integers of a repeated field, which may be packed or not.
---@param list number[]
---@param value number|string|nil as wire.each gave it
---@param is_bytes boolean
function wire.append(list, value, is_bytes)
  if not is_bytes then
    list[#list + 1] = value
    return
  end
  local at, stop = 1, #value
  while at <= stop do
    list[#list + 1], at = read_varint(value, at, stop)
  end
end

return wire
