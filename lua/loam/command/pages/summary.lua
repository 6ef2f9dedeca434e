-- summary.lua - the memory of each strategy as a table, for a terminal that cannot show a picture.

local terminal = require("loam.command.terminal")
local units = require("loam.command.units")

local summary = {}

local OWN_WORDS = {
  metadata = "loam's own memory", other = "reserved, or in change", strategies = "other strategies",
}

-- Returns what a group of memory is called.
function summary.name(group)
  local name = group.strategy or OWN_WORDS[group.what]
  return name ~= "" and name or "a strategy without a name"
end

-- Returns the memory on huge pages, and whether the strategy asks for such pages.
local function huge_text(group)
  local asks = group.asks_huge and group.asks_huge ~= "false"
  return units.bytes(group.huge_bytes) .. (asks and " (asks for them)" or "")
end

local function row_of(group)
  local live = group.live_bytes - group.absent_bytes
  local is_own = group.what == "metadata"
  local function bytes(n) return is_own and "-" or units.bytes(math.max(n, 0)) end
  return { summary.name(group), group.node and ("%d"):format(group.node) or "?",
           units.bytes(group.resident_bytes), bytes(live), bytes(group.cached_bytes),
           bytes(group.resident_bytes - live - group.cached_bytes), huge_text(group) }
end

-- Returns whether a group has no memory. An edit leaves such a strategy behind once its blocks have
-- moved. Its row would have the name of the new strategy and nothing but zeros.
local function is_empty(group) return group.resident_bytes == 0 and group.live_bytes == 0 end

-- Returns the table: a row for each strategy with memory and each NUMA node, with what the picture
-- shows of it.
---@param answer table the keys of `loam pages --json`
---@return string
function summary.table(answer, paint)
  local rows = { { "STRATEGY", "NODE", "IN MEMORY", "LIVE", "CACHED", "FREE", "HUGE PAGES" } }
  for _, group in ipairs(answer.groups) do
    if not is_empty(group) then rows[#rows + 1] = row_of(group) end
  end
  return terminal.table(rows,
    { [2] = true, [3] = true, [4] = true, [5] = true, [6] = true, [7] = true }, paint)
end

return summary
