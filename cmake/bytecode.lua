-- bytecode.lua - makes LuaJIT's bytecode of a chunk equal in each build.
--
-- string.dump writes the constant keys of a table in the order of their hashes, and LuaJIT hashes
-- strings with a random seed. bytecode.sorted writes these keys in the order of their bytes. The
-- format is that of LuaJIT 2.1, version 2 of its dumps (lj_bcdump.h). A dump of another version is
-- left as it is.
local bytecode = {}

local FORMAT = "\27LJ\2"
local STRIPPED = 2                       -- a bit in the flags of a dump
local CHILD, TABLE, STRING = 0, 1, 5     -- types of constants; STRING + n is a string of n bytes
local INT64, UINT64, COMPLEX = 2, 3, 4   -- other types: so many pairs of 32-bit numbers
local PAIRS = { [INT64] = 1, [UINT64] = 1, [COMPLEX] = 2 }
local KEY_INTEGER, KEY_NUMBER = 3, 4     -- types of keys and values of a table

-- Returns a number in the format ULEB128, and the place behind it.
local function read_number(text, at)
  local value, scale = 0, 1
  while true do
    local byte = text:byte(at)
    value, scale, at = value + byte % 128 * scale, scale * 128, at + 1
    if byte < 128 then return value, at end
  end
end

local function skip_numbers(text, at, count)
  for _ = 1, count do at = select(2, read_number(text, at)) end
  return at
end

-- Returns the place behind a key or a value of a table.
local function skip_item(text, at)
  local kind
  kind, at = read_number(text, at)
  if kind >= STRING then return at + kind - STRING end
  if kind == KEY_INTEGER then return skip_numbers(text, at, 1) end
  return skip_numbers(text, at, kind == KEY_NUMBER and 2 or 0)
end

-- Returns the pairs of a constant table in order, and the place behind the table.
local function sort_pairs(text, at, count)
  local list = {}
  for i = 1, count do
    local from = at
    at = skip_item(text, skip_item(text, at))
    list[i] = text:sub(from, at - 1)
  end
  table.sort(list)
  return table.concat(list), at
end

-- Returns the sorted form of a constant of a function, and the place behind the constant.
local function sort_constant(text, from)
  local kind, at = read_number(text, from)
  if kind == TABLE then
    local items, keys
    items, at = read_number(text, at)
    keys, at = read_number(text, at)
    for _ = 1, items do at = skip_item(text, at) end
    local sorted, behind = sort_pairs(text, at, keys)
    return text:sub(from, at - 1) .. sorted, behind
  end
  if kind >= STRING then at = at + kind - STRING
  elseif kind ~= CHILD then at = skip_numbers(text, at, 2 * PAIRS[kind]) end
  return text:sub(from, at - 1), at
end

-- Returns the sorted form of a function of `size` bytes that begins at `from`.
local function sort_function(text, from, size, is_stripped)
  local upvalues, at = text:byte(from + 3), from + 4
  local constants, instructions, debugging
  constants, at = read_number(text, at)
  at = skip_numbers(text, at, 1)
  instructions, at = read_number(text, at)
  if not is_stripped then
    debugging, at = read_number(text, at)
    if debugging > 0 then at = skip_numbers(text, at, 2) end
  end
  at = at + 4 * instructions + 2 * upvalues
  local out = { text:sub(from, at - 1) }
  for _ = 1, constants do out[#out + 1], at = sort_constant(text, at) end
  out[#out + 1] = text:sub(at, from + size - 1)
  return table.concat(out)
end

---@param text string of string.dump
---@return string
function bytecode.sorted(text)
  if text:sub(1, #FORMAT) ~= FORMAT then return text end
  local flags, at = read_number(text, #FORMAT + 1)
  local is_stripped = flags % (2 * STRIPPED) >= STRIPPED
  if not is_stripped then
    local length
    length, at = read_number(text, at)
    at = at + length
  end
  local out, behind = {}, 1
  while true do
    local size, from = read_number(text, at)
    if size == 0 then break end
    out[#out + 1] = text:sub(behind, from - 1)
    out[#out + 1] = sort_function(text, from, size, is_stripped)
    at, behind = from + size, from + size
  end
  out[#out + 1] = text:sub(behind)
  return table.concat(out)
end

return bytecode
