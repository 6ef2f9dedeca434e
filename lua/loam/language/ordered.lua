-- ordered.lua - the order in which `pairs` and `next` of a policy go over a table.
--
-- LuaJIT's order of strings differs from process to process. A policy that takes the first of
-- several rules that fit would then decide otherwise at each load. Here numbers come first, from
-- low to high, then strings, then false and true, then strategies in the order in which they were
-- made. (Other tables, and functions, come last in LuaJIT's order.)

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

-- Returns the keys of a table in their order; nil: LuaJIT goes over them as 1, 2, 3 and so on.
local function keys_of(t)
  local keys, n, is_list = {}, 0, true
  for key in next, t do
    n = n + 1
    keys[n] = key
    if key ~= n then is_list = false end
  end
  if is_list then return nil end
  table.sort(keys, is_before)
  return keys
end

local IN_ORDER = {} -- stands for the keys of a table that has 1 to n

local of_constant = setmetatable({}, { __mode = "k" }) -- table that does not change -> its keys

local function keys_for(t, is_constant)
  if not is_constant then return keys_of(t) end
  local keys = of_constant[t]
  if not keys then
    keys = keys_of(t) or IN_ORDER
    of_constant[t] = keys
  end
  return keys ~= IN_ORDER and keys or nil
end

---@param is_constant boolean whether the table does not change any more
function ordered.pairs(t, is_constant)
  local keys, at = keys_for(t, is_constant), 0
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

local walks = setmetatable({}, { __mode = "k" }) -- table -> { keys, place of each key }

local function walk_of(t, is_constant)
  local walk = walks[t]
  if walk then return walk end
  walk = { keys = keys_for(t, is_constant), places = {} }
  for place, key in ipairs(walk.keys or {}) do walk.places[key] = place end
  walks[t] = walk
  return walk
end

-- Like Lua's next. A walk over a table that can change begins anew at its first key.
function ordered.next(t, key, is_constant)
  if key == nil then
    if not is_constant then walks[t] = nil end
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
