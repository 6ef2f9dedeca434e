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

-- Returns the keys of a table, sorted, from its sorted keys at an earlier time. The result may also
-- have keys that were removed since.
local function renewed(t, n, keys)
  local kept, is_kept = {}, {}
  for _, key in ipairs(keys) do
    if rawget(t, key) ~= nil then
      kept[#kept + 1] = key
      is_kept[key] = true
    end
  end
  if #kept == n then return keys end
  local added, all, at = {}, {}, 1
  for key in next, t do
    if not is_kept[key] then added[#added + 1] = key end
  end
  table.sort(added, is_before)
  for _, key in ipairs(kept) do
    while added[at] ~= nil and is_before(added[at], key) do
      all[#all + 1] = added[at]
      at = at + 1
    end
    all[#all + 1] = key
  end
  for i = at, #added do all[#all + 1] = added[i] end
  return all
end

local known = setmetatable({}, { __mode = "k" }) -- table -> its keys, sorted
local is_final = setmetatable({}, { __mode = "k" }) -- tables whose keys in `known` are constant

-- Returns the keys of a table in their order, and perhaps keys that were removed; nil: LuaJIT has
-- them in this order. A table that was sorted before is not sorted again, because a loop in a loop
-- asks many times.
local function keys_of(t, is_constant)
  local keys = known[t]
  if is_final[t] then return keys end
  local n, is_list = count_of(t)
  if is_list then return nil end
  keys = keys and renewed(t, n, keys) or sorted_keys(t)
  known[t] = keys
  is_final[t] = is_constant or nil
  return keys
end

---@param is_constant boolean whether the table does not change any more
function ordered.pairs(t, is_constant)
  local keys, at = keys_of(t, is_constant), 0
  if not keys then return function(_, key) return next(t, key) end, t, nil end
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

local walks = setmetatable({}, { __mode = "k" }) -- table -> { keys, place of each key }

local function begin_walk(t, is_constant)
  local keys, walk = keys_of(t, is_constant), walks[t]
  if walk and walk.keys == keys then return walk end
  walk = { keys = keys, places = {} }
  for place, key in ipairs(keys or {}) do walk.places[key] = place end
  walks[t] = walk
  return walk
end

-- Like Lua's next. A loop may remove the key that it has got: the walk goes on behind it.
function ordered.next(t, key, is_constant)
  local walk = key ~= nil and walks[t] or begin_walk(t, is_constant)
  local place = key == nil and 0 or walk.places[key]
  if not walk.keys or not place then return next(t, key) end
  repeat
    place = place + 1
    key = walk.keys[place]
    if key == nil then return nil end
  until rawget(t, key) ~= nil
  return key, rawget(t, key)
end

return ordered
