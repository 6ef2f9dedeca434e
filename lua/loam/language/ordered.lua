-- ordered.lua - the order in which `pairs` and `next` of a policy go over a table.
--
-- LuaJIT's order of strings differs from process to process. If several rules of a table fit, and
-- a policy takes the one that it meets first, it would decide otherwise at each load. Here numbers
-- come first, from low to high, then strings, then false and true, then strategies in the order in
-- which they were made. (Other tables, and functions, come last in LuaJIT's order.)

local ordered = {}

local RANK = { number = 1, string = 2, boolean = 3 }

local serial = setmetatable({}, { __mode = "k" }) -- object -> its number
local count = 0

-- Gives an object its place behind those that were numbered before it.
function ordered.number(object)
  count = count + 1
  serial[object] = count
end

local function is_before(a, b)
  local rank, other = RANK[type(a)] or 4, RANK[type(b)] or 4
  if rank ~= other then return rank < other end
  if rank <= 2 then return a < b end
  if rank == 3 then return b and not a end
  return (serial[a] or math.huge) < (serial[b] or math.huge)
end

-- Returns the number of keys of a table, and whether LuaJIT goes over them as 1, 2, 3 and so on.
local function count_of(t)
  local n, is_list = 0, true
  for key in next, t do
    n = n + 1
    if key ~= n then is_list = false end
  end
  return n, is_list
end

local function sorted_keys(t)
  local keys, n = {}, 0
  for key in next, t do
    n = n + 1
    keys[n] = key
  end
  table.sort(keys, is_before)
  return keys
end

local function has_all(t, keys)
  for _, key in ipairs(keys) do
    if rawget(t, key) == nil then return false end
  end
  return true
end

local known = setmetatable({}, { __mode = "k" }) -- table -> its keys, sorted
local is_final = setmetatable({}, { __mode = "k" }) -- tables whose keys in `known` are constant

-- Returns the keys of a table in their order; nil: LuaJIT has them in this order. A table that was
-- sorted before is only compared with the result, since a loop in a loop asks many times.
local function keys_of(t, is_constant)
  local keys = known[t]
  if is_final[t] then return keys end
  local n, is_list = count_of(t)
  if is_list then return nil end
  if not keys or #keys ~= n or not has_all(t, keys) then
    keys = sorted_keys(t)
    known[t] = keys
  end
  is_final[t] = is_constant or nil
  return keys
end

---@param is_constant boolean whether the table does not change any more
function ordered.pairs(t, is_constant)
  local keys, at = keys_of(t, is_constant), 0
  if not keys then return next, t, nil end
  return function()
    local key, value
    repeat
      at = at + 1
      key = keys[at]
      if key == nil then return nil end
      value = rawget(t, key)
    until value ~= nil -- the loop may have removed it
    return key, value
  end, t, nil
end

local function first(t)
  local least = next(t)
  for key in next, t do
    if is_before(key, least) then least = key end
  end
  return least
end

local walks = setmetatable({}, { __mode = "k" }) -- table -> { keys, places, is_constant }

local function walk_of(t, is_constant)
  local walk = walks[t]
  if walk then return walk end
  walk = { keys = keys_of(t, is_constant), places = {}, is_constant = is_constant }
  for place, key in ipairs(walk.keys or {}) do walk.places[key] = place end
  walks[t] = walk
  return walk
end

-- Like Lua's next. A new walk over a table that can change reads its keys again.
function ordered.next(t, key, is_constant)
  if key == nil then
    if walks[t] and not walks[t].is_constant then walks[t] = nil end
    local least = first(t)
    return least, rawget(t, least)
  end
  local walk = walk_of(t, is_constant)
  local place = walk.places[key]
  if not place then return next(t, key) end
  repeat
    place = place + 1
    key = walk.keys[place]
    if key == nil then return nil end
  until rawget(t, key) ~= nil
  return key, rawget(t, key)
end

return ordered
