-- columns.lua - the columns of `loam top`: their heads, their texts and their values for sorting.

local terminal = require("loam.command.terminal")
local units = require("loam.command.units")

local columns = {}

local BAR = 10 -- characters of a bar

---@class loam.TopColumn
---@field id string the name for --sort
---@field head string
---@field right boolean whether texts are aligned to the right
---@field is_name boolean|nil whether the column may be cut to fit the terminal
---@field is_rest boolean|nil whether the column, the last one, gets what the others leave of a line
---@field is_text boolean|nil whether rows are sorted by a text
---@field is_optional boolean|nil whether the column is left out where no group has a value
---@field value fun(group: loam.TopGroup): number|string|nil
---@field text fun(group: loam.TopGroup): string

-- ---- Texts

local function count_text(n)
  return n and units.count(n) or "-"
end

local function bytes_text(n)
  return n and units.bytes(n) or "-"
end

-- Returns a change, with its sign.
local function change_text(n)
  if not n or n == 0 then return bytes_text(n) end
  return (n > 0 and "+" or "-") .. units.bytes(math.abs(n))
end

-- Returns a share from 0 to 1 as a bar: "[######----]".
local function bar(share)
  local full = math.floor(math.min(1, share) * BAR + 0.5)
  return "[" .. ("#"):rep(full) .. ("-"):rep(BAR - full) .. "]"
end

local function limit_text(group)
  if not group.limit then return "" end
  local share = group.limit_used / group.limit
  return ("%s %3d%% of %s"):format(bar(share), math.floor(100 * share), units.exact(group.limit))
end

local function policy_text(group)
  if group.hashes_differ then return "several" end
  return group.hash and group.hash:sub(1, 8) or "-"
end

-- Returns how old the figures are, in seconds.
local function age_text(group)
  return ("%.1fs"):format(group.age_ms / 1000)
end

local function state_text(group)
  local process = group.process
  if process.ended_at then return "ended" end
  return process.error and "not read" or process.state or "?"
end

-- ---- Columns

local function field(name)
  return function(group) return group[name] end
end

local function column(id, head, value, text)
  return { id = id, head = head, right = true, value = value, text = text }
end

local function figure(id, head, name, text)
  return column(id, head, field(name), function(group) return text(group[name]) end)
end

local function left(one)
  one.right = false
  return one
end

local function name_column(head)
  local value = field("name")
  return { id = "name", head = head, right = false, is_name = true, is_text = true, value = value,
           text = function(group) return terminal.plain(group.name) end }
end

local LIVE = figure("live", "LIVE", "live_bytes", bytes_text)
local ASLEEP = figure("asleep", "ASLEEP", "asleep_bytes", bytes_text)
ASLEEP.is_optional = true
local BLOCKS = figure("blocks", "BLOCKS", "live_blocks", count_text)
local RATE = figure("rate", "BYTES/S", "bytes_per_s", bytes_text)
local BLOCK_RATE = figure("block_rate", "BLOCKS/S", "blocks_per_s", function(n)
  return n and units.count(math.floor(n + 0.5)) or "-"
end)
local PEAK = figure("peak", "PEAK", "peak_bytes", bytes_text)
local GROWN = figure("grown", "GROWN", "grown_bytes", change_text)
local LIMIT = left(column("limit", "LIMIT", function(group)
  return group.limit and group.limit_used / group.limit
end, limit_text))
local FALLBACKS = figure("fallbacks", "FALLBACKS", "fallbacks", count_text)
local FAILED = figure("failed", "FAILED", "failed", count_text)
local SHORTFALL = figure("shortfall", "SHORTFALL", "shortfall_bytes", bytes_text)
local PROCESSES = figure("processes", "PROCESSES", "processes", count_text)
local AGE = column("age", "AGE", field("age_ms"), age_text)
local POLICY = left(column("policy", "POLICY", policy_text, policy_text))
local STATE = left(column("state", "STATE", state_text, state_text))
POLICY.is_text, STATE.is_text = true, true
local PID = column("pid", "PID", function(group) return group.process.pid end,
  function(group) return ("%d"):format(group.process.pid) end)
local RANK = column("rank", "RANK", function(group) return group.process.rank end,
  function(group) return group.process.rank and ("%d"):format(group.process.rank) or "-" end)
RANK.is_optional = true
local COMMAND = left(column("command", "COMMAND", function(group) return group.process.command end,
  function(group) return terminal.plain(group.process.command or "-") end))
COMMAND.is_text, COMMAND.is_optional, COMMAND.is_rest = true, true, true

-- In the views of tags and strategies, a terminal of 80 columns shows all columns up to LIMIT.
columns.OF = {
  tag = { name_column("TAG"), LIVE, ASLEEP, BLOCKS, RATE, BLOCK_RATE, LIMIT, GROWN, PEAK,
          PROCESSES, AGE },
  strategy = { name_column("STRATEGY"), LIVE, ASLEEP, BLOCKS, RATE, BLOCK_RATE, LIMIT, GROWN, PEAK,
               FALLBACKS, FAILED, SHORTFALL, PROCESSES, AGE },
  node = { name_column("NODE"), figure("live", "IN MEMORY", "live_bytes", bytes_text),
           GROWN, PEAK, PROCESSES, AGE },
  process = { PID, name_column("PROGRAM"), RANK, STATE, LIVE, ASLEEP, BLOCKS, RATE, BLOCK_RATE,
              LIMIT, GROWN, PEAK, FALLBACKS, FAILED, SHORTFALL, POLICY, AGE, COMMAND },
  service = { name_column("PROGRAM"), PROCESSES, LIVE, ASLEEP, BLOCKS, RATE, BLOCK_RATE, LIMIT,
              GROWN, PEAK, FALLBACKS, FAILED, SHORTFALL, POLICY, AGE },
}

-- Returns a column of a grouping by its id; nil: the grouping has none.
---@return loam.TopColumn|nil, integer|nil
function columns.find(by, id)
  for i, one in ipairs(columns.OF[by]) do
    if one.id == id then return one, i end
  end
  return nil
end

-- Returns the id of the column with a name, which is its id or its heading in capital or small
-- letters; nil: the grouping has none.
---@return string|nil
function columns.id_of(by, name)
  for _, one in ipairs(columns.OF[by]) do
    if one.id == name:lower() or one.head:lower() == name:lower() then return one.id end
  end
  return nil
end

-- Returns the ids of all columns of a grouping, in order.
function columns.ids(by)
  local ids = {}
  for i, one in ipairs(columns.OF[by]) do ids[i] = one.id end
  return ids
end

local function has_value(one, list)
  for _, group in ipairs(list) do
    if one.value(group) ~= nil then return true end
  end
  return false
end

-- Returns the columns to show for some groups: without optional ones where no group has a value.
---@param list loam.TopGroup[]
---@return loam.TopColumn[]
function columns.shown(by, list)
  local shown = {}
  for _, one in ipairs(columns.OF[by]) do
    if not one.is_optional or has_value(one, list) then shown[#shown + 1] = one end
  end
  return shown
end

-- ---- Order

-- Returns a function that tells whether group `a` stands before group `b`. The greatest number
-- comes first, and texts are in alphabetical order; `reverse` turns the order around. Groups
-- without a value stand last. Equal groups are ordered by their names.
---@param one loam.TopColumn
function columns.order(one, reverse)
  local value = one.value
  return function(a, b)
    local x, y = value(a), value(b)
    if x == y or (x == nil and y == nil) then
      if a.name ~= b.name then return a.name < b.name end
      return a.key < b.key
    end
    if x == nil or y == nil then return y == nil end
    local is_before = x > y
    if type(x) == "string" then is_before = x < y end
    if reverse then return not is_before end
    return is_before
  end
end

-- Returns the groups whose name has a text in it, whatever the case of the letters. In the view of
-- processes, the text may also be in the command line.
function columns.filter(by, list, text)
  if text == "" then return list end
  local wanted, out = text:lower(), {}
  local function has(words) return words and words:lower():find(wanted, 1, true) end
  for _, group in ipairs(list) do
    if has(group.name) or by == "process" and has(group.process.command) then
      out[#out + 1] = group
    end
  end
  return out
end

local FEW = 512

-- Returns the first n groups in an order. If n is small, the function does not sort all groups,
-- which would take longer.
function columns.first(list, is_before, n)
  if n == 0 then return {} end
  if n > FEW or n >= #list then
    local all = {}
    for i, group in ipairs(list) do all[i] = group end
    table.sort(all, is_before)
    return all
  end
  local best = {}
  for _, group in ipairs(list) do
    local at = #best
    if at < n or is_before(group, best[at]) then
      if at == n then best[at] = nil else at = at + 1 end
      while at > 1 and is_before(group, best[at - 1]) do
        best[at] = best[at - 1]
        at = at - 1
      end
      best[at] = group
    end
  end
  return best
end

return columns
