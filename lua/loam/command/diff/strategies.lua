-- strategies.lua - which strategy of one policy is which of the other, and what became of each.
--
-- Strategies of two policies are the same one if name and description are equal. Of the others,
-- those with equal names are one strategy that was changed, and those with equal descriptions one
-- that was renamed. The rest were removed or added.

local strategies = {}

-- Pairs members without a partner whose `key` is equal, in the order of declaration. Calls
-- `found(old, new)` for each pair.
local function pair(old, new, key, found)
  local waiting = {}
  for _, member in ipairs(new) do
    if not member.partner then
      local list = waiting[key(member)] or { first = 1 }
      waiting[key(member)] = list
      list[#list + 1] = member
    end
  end
  for _, member in ipairs(old) do
    local list = not member.partner and waiting[key(member)]
    local other = list and list[list.first]
    if other then
      list.first = list.first + 1
      member.partner, other.partner = other, member
      found(member, other)
    end
  end
end

local function by_all(member) return member.name .. "\0" .. member.described end
local function by_name(member) return member.name end
local function by_description(member) return member.described end

-- ---- options

-- Returns the text of an option's value, so that equal values have equal texts.
local function value_text(value)
  if type(value) ~= "table" then return tostring(value) end
  local keys, out = {}, {}
  for key in pairs(value) do keys[#keys + 1] = key end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  for i, key in ipairs(keys) do out[i] = tostring(key) .. "=" .. value_text(value[key]) end
  return "{" .. table.concat(out, ",") .. "}"
end

-- Lists the options in which two strategies differ, sorted by name: { option, old, new }.
---@return table[]
function strategies.options(old, new)
  local names, list = {}, {}
  for _, report in ipairs { old.report, new.report } do
    for name in pairs(report) do names[name] = true end
  end
  names.name = nil
  for name in pairs(names) do
    local before, after = old.report[name], new.report[name]
    if value_text(before) ~= value_text(after) then
      list[#list + 1] = { option = name, old = before, new = after }
    end
  end
  table.sort(list, function(a, b) return a.option < b.option end)
  return list
end

-- ---- pairing

-- Gives each member of both lists its number `same`, which is equal for members that give equal
-- memory and have one name, or had it before they were renamed. Returns what became of the others:
-- a list of { change = "changed", "renamed", "removed" or "added", old, new, options }.
---@param old loam.DiffMember[]
---@param new loam.DiffMember[]
function strategies.pair(old, new)
  local changes, count = {}, 0
  local function number(member)
    count = count + 1
    member.same = count
    return count
  end
  local function alike(a, b) b.same = number(a) end
  pair(old, new, by_all, alike)
  pair(old, new, by_name, function(a, b)
    number(a)
    number(b)
    changes[#changes + 1] = { change = "changed", old = a, new = b,
                              options = strategies.options(a, b) }
  end)
  pair(old, new, by_description, function(a, b)
    alike(a, b)
    changes[#changes + 1] = { change = "renamed", old = a, new = b, options = {} }
  end)
  for _, member in ipairs(old) do
    if not member.same then changes[#changes + 1] = { change = "removed", old = member } end
    if not member.same then number(member) end
  end
  for _, member in ipairs(new) do
    if not member.same then changes[#changes + 1] = { change = "added", new = member } end
    if not member.same then number(member) end
  end
  return changes
end

-- Returns whether a strategy has a limit that does not count memory which is live when the edit
-- goes live. A limit goes on counting only if it was there, and nothing but `limit` and `soft` is
-- edited (core/heap/strategy.h).
function strategies.counts_anew(entry)
  if not entry.old or not entry.new or not entry.new.report.limit then return false end
  if entry.change == "renamed" or not entry.old.report.limit then return true end
  for _, one in ipairs(entry.options) do
    if one.option ~= "limit" and one.option ~= "soft" then return true end
  end
  return false
end

-- ---- kinds of differences between two chains

local RANK = { denied = 1, fallback = 2, limits = 3, options = 7, moved = 7, granted = 8 }
local RANK_OF_OPTION = { kind = 4, numa = 5, huge = 6 }

local function denies(chain) return chain[1].report.kind == "deny" end

-- Returns whether a member of the old chain is missing in the new one.
local function loses(old, new)
  local has = {}
  for _, member in ipairs(new) do has[member.same] = true end
  for _, member in ipairs(old) do
    local other = member.partner or member
    if not has[member.same] and not has[other.same] then return true end
  end
  return false
end

local function rank_of(kind, options)
  local rank = RANK[kind]
  for _, entry in ipairs(options) do rank = math.min(rank, RANK_OF_OPTION[entry.option] or rank) end
  return rank
end

-- Lists the options in which the members of two chains differ. Returns nil if the chains have
-- different members; a strategy with changed options is no different member.
local function changed_options(old, new)
  local list = {}
  if #old ~= #new then return nil end
  for i, member in ipairs(old) do
    if member.same ~= new[i].same then
      if member.partner ~= new[i] then return nil end
      for _, entry in ipairs(strategies.options(member, new[i])) do list[#list + 1] = entry end
    end
  end
  return list
end

-- Options that change how much memory a strategy may have, and not which memory.
local AMOUNTS = { limit = true, soft = true, shared = true }

local function kind_of_change(options)
  for _, entry in ipairs(options) do
    if not AMOUNTS[entry.option] then return "options" end
  end
  return #options > 0 and "limits" or "options"
end

-- Returns the kind of the difference between two chains, its rank (the lowest comes first), and the
-- options that differ.
---@param old loam.DiffMember[]
---@param new loam.DiffMember[]
function strategies.difference(old, new)
  if denies(old) ~= denies(new) then
    local kind = denies(new) and "denied" or "granted"
    return kind, RANK[kind], {}
  end
  local options = changed_options(old, new)
  if options then
    local kind = kind_of_change(options)
    return kind, rank_of(kind, options), options
  end
  if old[1].same == new[1].same or old[1].partner == new[1] then
    return "fallback", loses(old, new) and RANK.fallback or RANK.fallback + 0.5, {}
  end
  options = strategies.options(old[1], new[1])
  return "moved", rank_of("moved", options), options
end

---@return string[] the names of a chain
function strategies.names(chain)
  local names = {}
  for i, member in ipairs(chain) do names[i] = member.name end
  return names
end

return strategies
