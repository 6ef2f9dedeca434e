-- groups.lua - adds the figures of processes up: by tag, strategy, node, process or service.

local describe = require("loam.command.describe")

local groups = {}

groups.NAMES = { "tag", "strategy", "node", "process", "service" }

---@class loam.TopGroup
---@field key string
---@field name string
---@field live_bytes number|nil nil: no process of the group was looked at
---@field live_blocks number|nil nil: not known, as for a node
---@field asleep_bytes number|nil the part of live_bytes that sleeps; nil: nothing does
---@field bytes_per_s number|nil nil: no process was looked at twice
---@field blocks_per_s number|nil
---@field peak_bytes number|nil the most that top has seen in this group; nil: it saw nothing
---@field grown_bytes number|nil how much live_bytes rose since the first look at this group
---@field limit number|nil of the strategy that is nearest to its limit in one process
---@field limit_used number|nil
---@field fallbacks number|nil requests that fallbacks served; nil: not known by this grouping
---@field failed number|nil requests that could not be served
---@field shortfall_bytes number|nil bytes on other nodes, or on smaller pages, than asked for
---@field processes integer
---@field age_ms number since the oldest look
---@field ended boolean whether all its processes have ended
---@field process loam.TopProcess|nil the only process, if the group is one

-- ---- Sums

local function group_at(self, key, name)
  local group = self.by_key[key]
  if not group then
    group = { key = key, name = name, processes = 0, age_ms = 0, ended = true }
    self.by_key[key] = group
    self.list[#self.list + 1] = group
  end
  return group
end

-- Returns the group for figures of a process; nil if the process has ended and others of the group
-- live. The figures of an ended process stay in a group that has nothing else.
local function join(self, process, key, name)
  local group = group_at(self, key, name)
  if process.ended_at and not group.ended then return nil end
  if group.last ~= process then
    group.last = process
    group.processes = group.processes + 1
    group.ended = group.ended and process.ended_at ~= nil
    group.process = process
    if process.looked_at then
      group.age_ms = math.max(group.age_ms, self.now - process.looked_at)
    end
  end
  return group
end

local function add_to(group, name, value)
  if value then group[name] = (group[name] or 0) + value end
end

local function add_limit(group, limit, used)
  if not limit then return end
  if group.limit and group.limit_used / group.limit >= used / limit then return end
  group.limit, group.limit_used = limit, used
end

local function add_row(group, row)
  add_to(group, "live_bytes", row.live_bytes)
  add_to(group, "live_blocks", row.live_blocks)
  add_to(group, "asleep_bytes", row.asleep_bytes)
  add_to(group, "bytes_per_s", row.bytes_per_s)
  add_to(group, "blocks_per_s", row.blocks_per_s)
  add_limit(group, row.limit, row.limit_used)
end

-- Returns the bytes that a strategy has on other nodes, or on smaller pages, than it asks for.
local function shortfall_of(got)
  return got.elsewhere_bytes + math.max(0, got.huge_asked_bytes - got.huge_bytes)
end

-- ---- The groupings

local ADD = {}

function ADD.tag(self, process)
  for _, row in ipairs(process.rows) do
    local group = join(self, process, row.tag, row.tag == "" and '""' or row.tag)
    if group then add_row(group, row) end
  end
end

function ADD.strategy(self, process)
  local by_name = {}
  for _, row in ipairs(process.rows) do
    local name = describe.strategy_name(row)
    local group = join(self, process, name, name)
    if group then
      add_row(group, row)
      add_to(group, "failed", 0) -- a strategy that served all requests is not listed below
      add_to(group, "fallbacks", 0)
    end
    by_name[row.strategy] = group
  end
  for _, one in ipairs(process.figures and process.figures.strategies or {}) do
    local name = describe.strategy_name(one)
    local group = join(self, process, name, name)
    if group then
      add_to(group, "live_bytes", 0) -- a strategy without memory has no row
      add_to(group, "live_blocks", 0)
      add_to(group, "failed", one.failed)
      add_to(group, "fallbacks", one.served_late)
    end
  end
  for _, got in ipairs(process.got or {}) do
    local group = by_name[got.strategy]
    if group then add_to(group, "shortfall_bytes", shortfall_of(got)) end
  end
end

function ADD.node(self, process)
  for _, one in ipairs(process.nodes or {}) do
    local group = join(self, process, ("%d"):format(one.node), ("node %d"):format(one.node))
    if group then add_to(group, "live_bytes", one.bytes) end
  end
end

local function add_whole(self, process, key, name)
  local group = join(self, process, key, name)
  if not group then return end
  for _, row in ipairs(process.rows) do add_row(group, row) end
  if process.figures then
    add_to(group, "live_bytes", 0) -- a process without memory has no rows
    add_to(group, "live_blocks", 0)
    add_to(group, "fallbacks", process.figures.fallbacks)
    add_to(group, "failed", process.figures.failed + process.figures.denied)
  end
  if process.got then add_to(group, "shortfall_bytes", 0) end
  for _, got in ipairs(process.got or {}) do
    add_to(group, "shortfall_bytes", shortfall_of(got))
  end
  if not group.hash then group.hash = process.hash
  elseif process.hash ~= group.hash then group.hashes_differ = true end
end

function ADD.process(self, process)
  add_whole(self, process, ("%d"):format(process.pid), process.program)
end

function ADD.service(self, process)
  add_whole(self, process, process.program, process.program)
end

-- Living processes come first, so that an ended one adds nothing to a group that lives.
local function in_order(processes)
  local list = {}
  for _, process in ipairs(processes) do
    if not process.ended_at then list[#list + 1] = process end
  end
  for _, process in ipairs(processes) do
    if process.ended_at then list[#list + 1] = process end
  end
  return list
end

-- Adds the figures up, and notes the peaks and the first figures of the groups.
---@param processes loam.TopProcess[]
---@param by string a grouping of groups.NAMES
---@param peaks table<string, table<string, table>> by grouping and key: the greatest live_bytes
--- and the first one; top keeps this table
---@param now number milliseconds
---@return loam.TopGroup[]
function groups.build(processes, by, peaks, now)
  local self = { by_key = {}, list = {}, now = now }
  for _, process in ipairs(in_order(processes)) do ADD[by](self, process) end
  local is_first = not peaks[by]
  peaks[by] = peaks[by] or {}
  for _, group in ipairs(self.list) do
    -- A later process with this process id has peaks of its own.
    local key = by == "process" and group.key .. "." .. group.process.since_ms or group.key
    local live, seen = group.live_bytes, peaks[by][key]
    if live and not seen then
      -- A group of processes that were looked at before had nothing then.
      seen = { most = live, first = (is_first or not group.bytes_per_s) and live or 0 }
      peaks[by][key] = seen
    end
    if seen then
      seen.most = math.max(seen.most, live or 0)
      group.peak_bytes, group.grown_bytes = seen.most, live and live - seen.first
    end
  end
  return self.list
end

-- ---- The sum of all

-- Returns the figures of all processes together.
function groups.total(processes)
  local total = { live_bytes = 0, live_blocks = 0, fallbacks = 0, failed = 0, denied = 0,
                  shortfall_bytes = 0, processes = 0, policies = {}, unreadable = {}, short = {} }
  local by_hash = {}
  for _, process in ipairs(processes) do
    if not process.ended_at then
      total.processes = total.processes + 1
      if process.error then table.insert(total.unreadable, process) end
      local pressure = process.pressure
      if pressure and pressure.short then table.insert(total.short, process) end
      for _, row in ipairs(process.rows) do
        add_to(total, "bytes_per_s", row.bytes_per_s)
        add_to(total, "blocks_per_s", row.blocks_per_s)
        add_to(total, "asleep_bytes", row.asleep_bytes)
      end
      for _, name in ipairs { "live_bytes", "live_blocks", "fallbacks", "failed", "denied" } do
        add_to(total, name, process.figures and process.figures[name])
      end
      for _, got in ipairs(process.got or {}) do
        total.shortfall_bytes = total.shortfall_bytes + shortfall_of(got)
      end
      local policy = process.hash and by_hash[process.hash]
      if process.hash and not policy then
        policy = { hash = process.hash, name = process.policy or "", processes = 0 }
        by_hash[process.hash] = policy
        table.insert(total.policies, policy)
      end
      if policy then policy.processes = policy.processes + 1 end
    end
  end
  table.sort(total.policies, function(a, b) return a.processes > b.processes end)
  return total
end

return groups
