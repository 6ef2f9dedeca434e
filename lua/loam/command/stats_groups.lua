-- stats_groups.lua - groups the rows of an answer to `stats` by tag, strategy and size class.

local arguments = require("loam.command.arguments")

local stats_groups = {}

local FIGURES = { "live_bytes", "live_blocks", "total_bytes", "total_blocks", "asleep_bytes" }
local SIZE_MAX = 2 ^ 47 -- bytes of an address space

---@class loam.StatsKeys { tag: boolean, strategy: boolean, class: boolean }

local IS_KEY = { tag = true, strategy = true, class = true }

-- Reads the value of --by: words with commas between them.
---@param text string|nil nil: tag and strategy
---@return loam.StatsKeys
function stats_groups.keys(text)
  local keys = {}
  for word in ((text or "tag,strategy") .. ","):gmatch("([^,]*),") do
    if not IS_KEY[word] then
      arguments.misused(("--by: '%s' is none of tag, strategy and class"):format(
        arguments.plain(word)))
    end
    keys[word] = true
  end
  return keys
end

-- Returns whether a class stands for blocks whose size was not noted.
function stats_groups.is_unknown(class) return class.from == 0 and class.to >= SIZE_MAX end

-- Lists the classes of a row. A program with an older version of loam tells none.
function stats_groups.classes(row)
  if row.classes then return row.classes end
  return { { from = 0, to = SIZE_MAX, live_bytes = row.live_bytes, live_blocks = row.live_blocks,
             total_bytes = row.total_bytes, total_blocks = row.total_blocks,
             asleep_bytes = row.asleep_bytes } }
end

-- Adds the limit of a row to a group. Several strategies may have one name, for example before and
-- after an edit. The group shows the limit that is used most.
local function add_limit(group, row)
  if not row.limit then return end
  if group.limit and group.limit_used / group.limit >= row.limit_used / row.limit then return end
  group.limit, group.limit_used, group.limit_own = row.limit, row.limit_used, row.limit_own
  group.limit_peak = row.limit_peak
end

-- Adds figures to the group that they belong to. A new group gets the tag, the strategy and the
-- class that are among its keys.
local function add(groups, keys, row, class)
  local key = ("%s\0%s\0%s"):format(keys.tag and row.tag or "",
    keys.strategy and row.strategy .. "\0" .. row.kind or "", class and class.to or "")
  local group = groups.by_key[key]
  if not group then
    group = {
      tag = keys.tag and row.tag, strategy = keys.strategy and row.strategy,
      kind = keys.strategy and row.kind,
      from = class and class.from, to = class and class.to,
      live_bytes = 0, live_blocks = 0, total_bytes = 0, total_blocks = 0, asleep_bytes = 0,
    }
    groups.by_key[key] = group
    groups[#groups + 1] = group
  end
  if keys.strategy then add_limit(group, row) end
  local figures = class or row
  for _, name in ipairs(FIGURES) do group[name] = group[name] + (figures[name] or 0) end
end

-- Sorts groups: the pairs of tag and strategy with the most live bytes first, each with its classes
-- from the smallest on.
local function sort(groups, keys)
  local live, place, names = {}, {}, {}
  for i, g in ipairs(groups) do
    local name = ("%s\0%s\0%s"):format(g.tag, g.strategy, g.kind)
    names[g] = name
    live[name] = (live[name] or 0) + g.live_bytes
    place[name] = place[name] or i
  end
  table.sort(groups, function(a, b)
    local x, y = names[a], names[b]
    if x ~= y then
      if live[x] ~= live[y] then return live[x] > live[y] end
      return place[x] < place[y]
    end
    if not keys.class then return false end
    return a.to < b.to
  end)
end

-- Groups rows. Each group has the figures of a row, the tag and the strategy if the rows are
-- grouped by them, and `from` and `to` of its class. The class of unknown sizes comes last.
---@param rows table[] of an answer
---@param keys loam.StatsKeys
---@return table[]
function stats_groups.of(rows, keys)
  local groups = { by_key = {} }
  for _, row in ipairs(rows) do
    if keys.class then
      for _, class in ipairs(stats_groups.classes(row)) do add(groups, keys, row, class) end
    else
      add(groups, keys, row)
    end
  end
  groups.by_key = nil
  sort(groups, keys)
  return groups
end

return stats_groups
