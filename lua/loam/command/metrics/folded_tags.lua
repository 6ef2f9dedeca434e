-- folded_tags.lua - bounds the number of a process's series: tags beyond a number share one series,
-- whose tag is `other`.
--
-- The tags that had the most live bytes at some time have series of their own. A tag may lose its
-- series when others grow, so a counter of `other` cannot be the sum of the counters that it stands
-- for: it would fall when a tag leaves it, and Prometheus takes a counter that falls for a restart.
-- So a counter of `other` adds what its tags counted while they had no series of their own.

local folded_tags = {}

local OTHER = "other"
local SPARE = 1024 -- rows that a process no longer has are remembered up to that number at least
local OTHERS = 256 -- strategies and kinds for which `other` has rows of their own

-- The memory of the command about a process, from one reading of it to the next.
---@class loam.FoldedTags
---@field peak table<string, number> the most live bytes that a tag was seen to have
---@field bytes table<string, number> the bytes that a row had counted at the last reading
---@field blocks table<string, number> the blocks likewise
---@field other table<string, table> the counters of `other`, by strategy and kind
---@field others number the number of rows in `other`

---@return loam.FoldedTags
function folded_tags.new()
  return { peak = {}, bytes = {}, blocks = {}, other = {}, others = 0 }
end

-- Adds the bytes that sleep. A row without sleeping memory has no such number.
local function add_asleep(to, row)
  if row.asleep_bytes then to.asleep_bytes = (to.asleep_bytes or 0) + row.asleep_bytes end
end

-- Joins rows with equal labels: a strategy that was edited has a row for each of its descriptions.
local function joined(rows)
  local by_key, out = {}, {}
  for _, row in ipairs(rows) do
    local key = row.tag .. "\0" .. row.strategy .. "\0" .. row.kind
    local sum = by_key[key]
    if not sum then
      sum = { key = key, tag = row.tag, strategy = row.strategy, kind = row.kind, live_bytes = 0,
              live_blocks = 0, total_bytes = 0, total_blocks = 0 }
      by_key[key], out[#out + 1] = sum, sum
    end
    sum.live_bytes = sum.live_bytes + row.live_bytes
    sum.live_blocks = sum.live_blocks + row.live_blocks
    sum.total_bytes = sum.total_bytes + row.total_bytes
    sum.total_blocks = sum.total_blocks + row.total_blocks
    add_asleep(sum, row)
  end
  return out
end

-- Notes the sizes of all tags. Returns the tags, the largest first; the tag `other` is not in it.
local function ranked(state, sums)
  local live, ever, tags = {}, {}, {}
  for _, sum in ipairs(sums) do
    live[sum.tag] = (live[sum.tag] or 0) + sum.live_bytes
    ever[sum.tag] = (ever[sum.tag] or 0) + sum.total_bytes
  end
  for tag, bytes in pairs(live) do
    state.peak[tag] = math.max(state.peak[tag] or 0, bytes)
    if tag ~= OTHER then tags[#tags + 1] = tag end
  end
  table.sort(tags, function(a, b)
    if state.peak[a] ~= state.peak[b] then return state.peak[a] > state.peak[b] end
    if ever[a] ~= ever[b] then return ever[a] > ever[b] end
    return a < b
  end)
  return tags
end

-- Makes sure that a counter never falls: tables that change while they are read can make it too
-- large once, and then the earlier number stays. Returns the bytes and blocks that the row has
-- counted since the reading before.
local function advance(state, sum)
  local bytes, blocks = state.bytes[sum.key] or 0, state.blocks[sum.key] or 0
  sum.total_bytes = math.max(sum.total_bytes, bytes)
  sum.total_blocks = math.max(sum.total_blocks, blocks)
  state.bytes[sum.key], state.blocks[sum.key] = sum.total_bytes, sum.total_blocks
  return sum.total_bytes - bytes, sum.total_blocks - blocks
end

-- Returns the row of `other` for the strategy and kind of a row. After so many strategies, all
-- further ones have one row of the strategy `other`.
local function other_of(state, sum)
  local strategy, kind = sum.strategy, sum.kind
  if not state.other[strategy .. "\0" .. kind] and state.others >= OTHERS then
    strategy, kind = OTHER, "other"
  end
  local key = strategy .. "\0" .. kind
  local other = state.other[key]
  if not other then
    other = { tag = OTHER, strategy = strategy, kind = kind, total_bytes = 0, total_blocks = 0 }
    state.other[key], state.others = other, state.others + 1
  end
  return other
end

local function clear_live(state)
  for _, other in pairs(state.other) do
    other.live_bytes, other.live_blocks, other.asleep_bytes = 0, 0, nil
  end
end

local function add_to_other(state, sum, bytes, blocks)
  local other = other_of(state, sum)
  other.live_bytes = (other.live_bytes or 0) + sum.live_bytes
  other.live_blocks = (other.live_blocks or 0) + sum.live_blocks
  add_asleep(other, sum)
  other.total_bytes = other.total_bytes + bytes
  other.total_blocks = other.total_blocks + blocks
end

-- Forgets the rows that the process no longer has, where they are more than those that it has. The
-- rows of a program stay as long as it runs, but a hostile one may show new ones each time.
local function forget_gone(state, sums)
  local known, peak, bytes, blocks = 0, {}, {}, {}
  for _ in pairs(state.bytes) do known = known + 1 end
  if known <= 2 * #sums + SPARE then return end
  for _, sum in ipairs(sums) do
    peak[sum.tag] = state.peak[sum.tag]
    bytes[sum.key], blocks[sum.key] = state.bytes[sum.key], state.blocks[sum.key]
  end
  state.peak, state.bytes, state.blocks = peak, bytes, blocks
end

local function by_labels(a, b)
  if a.tag ~= b.tag then return a.tag < b.tag end
  if a.strategy ~= b.strategy then return a.strategy < b.strategy end
  return a.kind < b.kind
end

-- Turns the rows of a reading into rows whose labels differ, at most `most` tags and `other`. A tag
-- of the program that is itself called `other` is counted there.
---@param state loam.FoldedTags
---@param rows table[] of the answer to `stats`
---@param most number
---@return table[] rows in the order of their labels
---@return number how many tags have no series of their own
function folded_tags.fold(state, rows, most)
  local sums, shown, out = joined(rows), {}, {}
  local tags = ranked(state, sums)
  for i = 1, math.min(most, #tags) do shown[tags[i]] = true end
  clear_live(state)
  for _, sum in ipairs(sums) do
    local bytes, blocks = advance(state, sum)
    if shown[sum.tag] then out[#out + 1] = sum else add_to_other(state, sum, bytes, blocks) end
  end
  forget_gone(state, sums)
  for _, other in pairs(state.other) do out[#out + 1] = other end
  table.sort(out, by_labels)
  return out, math.max(0, #tags - most)
end

return folded_tags
