-- families.lua - which series the page has, and how they are made from the figures of a process.

local exposition = require("loam.command.metrics.exposition")

local families = {}

local labels, number = exposition.labels, exposition.number

-- Name without suffix, type, unit or false, help. The page has them in this order.
local CATALOG = {
  { "loam_process", "info", false, "A process that runs under loam." },
  { "loam_process_readable", "gauge", false,
    "1 if the figures of memory could be read; 0 if only those of the board are known." },
  { "loam_process_stopped", "gauge", false,
    "1 if a signal or a debugger has stopped the process." },
  { "loam_live_bytes", "gauge", "bytes", "Memory in use now." },
  { "loam_live_blocks", "gauge", false, "Blocks in use now." },
  { "loam_asleep_bytes", "gauge", "bytes",
    "Part of the memory in use whose device memory loam_sleep has given back." },
  { "loam_allocated_bytes", "counter", "bytes", "Memory allocated since the process started." },
  { "loam_allocated_blocks", "counter", false, "Blocks allocated since the process started." },
  { "loam_tags_folded", "gauge", false, "Tags that share the series of the tag other." },
  { "loam_limit_bytes", "gauge", "bytes", "Limit of a strategy." },
  { "loam_limit_used_bytes", "gauge", "bytes", "Part of the limit that the process uses." },
  { "loam_limit_peak_bytes", "gauge", "bytes",
    "Most that was used of the limit since the start, of a shared limit by all processes." },
  { "loam_limit_shared_used_bytes", "gauge", "bytes",
    "Part of a shared limit that all processes use." },
  { "loam_board_live_bytes", "gauge", "bytes",
    "About the memory in use of a strategy, as a process that cannot be read has noted it." },
  { "loam_board_held_bytes", "gauge", "bytes",
    "Memory of the pool of a strategy, as a process that cannot be read has noted it." },
  { "loam_board_failed_requests", "counter", false,
    "Requests that a strategy could not serve, as a process that cannot be read has noted it." },
  { "loam_board_age_seconds", "gauge", "seconds",
    "Time since a process that cannot be read has noted its figures." },
  { "loam_held_bytes", "gauge", "bytes", "Memory that the pools hold, in use or not." },
  { "loam_reserved_bytes", "gauge", "bytes", "Address space that loam has reserved." },
  { "loam_metadata_bytes", "gauge", "bytes", "Memory that loam needs for its own tables." },
  { "loam_resident_bytes", "gauge", "bytes", "Resident memory of the process." },
  { "loam_resident_loam_bytes", "gauge", "bytes",
    "Part of the resident memory in the pools of loam." },
  { "loam_device_pool_bytes", "gauge", "bytes",
    "Memory that loam's pools of a device have from its driver, in use or not." },
  { "loam_device_pool_used_bytes", "gauge", "bytes",
    "Part of the memory of loam's pools of a device that is in use." },
  { "loam_node_bytes", "gauge", "bytes",
    "Examined memory of a strategy that asks for nodes, by the NUMA node it is on." },
  { "loam_placement_checked_bytes", "gauge", "bytes",
    "Live memory of a strategy whose nodes were examined." },
  { "loam_placement_elsewhere_bytes", "gauge", "bytes",
    "Part of the examined memory on nodes that the strategy does not ask for." },
  { "loam_placement_unknown_bytes", "gauge", "bytes",
    "Memory whose nodes the kernel does not show." },
  { "loam_huge_asked_bytes", "gauge", "bytes", "Memory for which a strategy asks for huge pages." },
  { "loam_huge_got_bytes", "gauge", "bytes", "Memory of a strategy that has huge pages." },
  { "loam_denied_requests", "counter", false, "Requests that the policy denied." },
  { "loam_fallback_requests", "counter", false,
    "Requests that a later strategy of a chain served." },
  { "loam_failed_requests", "counter", false, "Requests that no strategy could serve." },
  { "loam_strategy_failed_requests", "counter", false,
    "Requests that a strategy could not serve, by the reason." },
  { "loam_strategy_late_requests", "counter", false,
    "Requests that a strategy served because earlier strategies of the chain could not." },
  { "loam_bad_frees", "counter", false, "Frees of addresses that are no live block." },
  { "loam_memory_stalled_ratio", "gauge", "ratio",
    "Part of the last ten seconds in which the control group waited for memory." },
  { "loam_memory_short", "gauge", false, "1 while memory is short in the control group." },
  { "loam_memory_alarms", "counter", false,
    "Alarms that memory is short, for all programs of one loam run." },
  { "loam_policy", "info", false, "The live policy." },
  { "loam_policy_generation", "gauge", false,
    "Number of the live policy; 0 is the built-in default." },
  { "loam_policy_loaded_timestamp_seconds", "gauge", "seconds",
    "Unix time at which the live policy was loaded." },
  { "loam_policy_last_load_successful", "gauge", false,
    "1 if the last attempt to load a policy succeeded, 0 if the policy was refused." },
  { "loam_policy_last_load_timestamp_seconds", "gauge", "seconds",
    "Unix time of the last attempt to load a policy." },
  { "loam_policy_loads", "counter", false, "Attempts to load a policy." },
  { "loam_policy_refused_loads", "counter", false, "Attempts to load a policy that were refused." },
  { "loam_policy_seen", "info", false,
    "Hash of the newest policy that the process was given, live or not." },
  { "loam_policy_refused", "info", false, "Hash of the policy that the last attempt refused." },
  { "loam_policy_watched", "gauge", false,
    "1 while something follows the policy file: the watcher of loam run, or the process." },
  { "loam_policy_tags_refused", "gauge", false, "Sites that get no memory: they have no plan." },
  { "loam_figures_age_seconds", "gauge", "seconds", "Age of the figures of memory." },
  { "loam_figures_exact", "gauge", false,
    "0 if tables changed while they were read, so that figures are close and not exact." },
  { "loam_processes", "gauge", false, "Processes on this page." },
  { "loam_processes_unreadable", "gauge", false,
    "Processes on this page whose memory could not be read." },
  { "loam_boards_unreadable", "gauge", false,
    "Boards of other versions of loam: their programs are not on this page." },
  { "loam_page_seconds", "gauge", "seconds", "Time that the command needed for the figures." },
  { "loam_exporter", "info", false, "The command that wrote this page." },
}

-- ---- one process

-- Makes a function that adds a sample of a process: add(name, value, more_labels). It adds nothing
-- for a value of nil.
local function adder(page, found)
  local status = found.status
  local own = labels("pid", ("%d"):format(status.pid), "program", status.program or "")
  if found.rank then own = own .. "," .. labels("rank", ("%d"):format(found.rank)) end
  return function(name, value, more)
    if value == nil then return end
    local samples = page[name].samples
    samples[#samples + 1] = more and own .. "," .. more or own
    samples[#samples + 1] = number(value)
  end
end

local function one_if(condition) return condition and 1 or 0 end

-- Times of boards are nanoseconds; 0 is no time.
local function seconds(ns)
  return (ns or 0) > 0 and ns / 1e9 or nil
end

local NO_HASH = "0000000000000000"

-- Returns the hash of the newest policy that reached the process: the one that it refused last, the
-- one that was published last on its board, or the live one.
local function hash_seen(status)
  local last, latest = status.last or {}, status.latest
  if last.ok == false and status.refused_hash then return status.refused_hash end
  return latest and latest.hash or status.hash or NO_HASH
end

local function add_policy(add, status)
  local last = status.last or {}
  add("loam_policy", 1, labels("name", status.name or "", "hash", status.hash or NO_HASH))
  add("loam_policy_generation", status.generation)
  add("loam_policy_loaded_timestamp_seconds", seconds(status.loaded_at))
  add("loam_policy_last_load_successful", one_if(last.ok ~= false))
  add("loam_policy_last_load_timestamp_seconds", seconds(last.at))
  add("loam_policy_loads", status.loads)
  add("loam_policy_refused_loads", status.refused)
  add("loam_policy_seen", 1, labels("hash", hash_seen(status)))
  if last.ok == false then
    add("loam_policy_refused", 1, labels("hash", status.refused_hash or NO_HASH))
  end
  add("loam_policy_watched", one_if(status.watching))
  add("loam_policy_tags_refused", status.tags_refused)
end

-- Limits come from the figures, and from the board where the figures lack a strategy: it has no
-- memory yet, or the process could not be read.
local function add_limits(add, status, figures)
  local seen = {}
  local function put(strategy, limit, used, peak, shared, all)
    if not limit or seen[strategy] then return end
    seen[strategy] = true
    local label = labels("strategy", strategy)
    add("loam_limit_bytes", limit, label)
    add("loam_limit_used_bytes", used, label)
    if peak then add("loam_limit_peak_bytes", peak, label) end
    if shared then
      add("loam_limit_shared_used_bytes", all, label .. "," .. labels("shared", shared))
    end
  end
  for _, row in ipairs(figures and figures.rows or {}) do
    put(row.strategy, row.limit, row.limit_own or row.limit_used, row.limit_peak,
      row.limit_shared, row.limit_used)
  end
  for _, limit in ipairs(status.limits or {}) do
    if limit.shared then
      put(limit.strategy, limit.limit_bytes, limit.used_bytes, limit.peak_bytes, limit.shared,
        limit.shared_used_bytes)
    end
  end
  for _, row in ipairs(figures and figures.got or {}) do
    put(row.strategy, row.limit, row.limit_used)
  end
  for _, limit in ipairs(status.limits or {}) do
    put(limit.strategy, limit.limit_bytes, limit.used_bytes, limit.peak_bytes)
  end
end

-- Adds the figures that a process has noted on its board. They stand for the figures of a process
-- that cannot be read.
local function add_board(add, status, unix)
  local by_name, order = {}, {}
  for _, use in ipairs(status.strategies or {}) do
    local sum = by_name[use.strategy]
    if not sum then
      sum = { held = 0, failed = 0 }
      by_name[use.strategy], order[#order + 1] = sum, use.strategy
    end
    if use.live_bytes then sum.live = (sum.live or 0) + use.live_bytes end
    sum.held, sum.failed = sum.held + use.held_bytes, sum.failed + use.failed
  end
  for _, strategy in ipairs(order) do
    local sum, label = by_name[strategy], labels("strategy", strategy)
    add("loam_board_live_bytes", sum.live, label)
    add("loam_board_held_bytes", sum.held, label)
    add("loam_board_failed_requests", sum.failed, label)
  end
  local noted = seconds(status.updated_at)
  add("loam_board_age_seconds", noted and math.max(0, math.floor(unix - noted)))
end

local function add_pressure(add, pressure)
  if not pressure then return end
  add("loam_memory_stalled_ratio", pressure.stalled / 100)
  add("loam_memory_short", one_if(pressure.short))
  add("loam_memory_alarms", pressure.alarms)
end

local function add_series(add, series)
  for _, row in ipairs(series) do
    local label = labels("tag", row.tag, "strategy", row.strategy, "kind", row.kind)
    add("loam_live_bytes", row.live_bytes, label)
    add("loam_live_blocks", row.live_blocks, label)
    add("loam_asleep_bytes", row.asleep_bytes or (row.kind == "device" and 0 or nil), label)
    add("loam_allocated_bytes", row.total_bytes, label)
    add("loam_allocated_blocks", row.total_blocks, label)
  end
end

local GOT = {
  "failed", "at_limit", "served_late", "checked_bytes", "elsewhere_bytes", "unknown_bytes",
  "huge_asked_bytes", "huge_bytes",
}

-- Sums the rows of strategies that have one name: an edited strategy is another one.
local function joined(got)
  local by_name, out = {}, {}
  for _, row in ipairs(got) do
    local sum = by_name[row.strategy]
    if not sum then
      sum = { strategy = row.strategy, nodes = {} }
      by_name[row.strategy], out[#out + 1] = sum, sum
    end
    for _, key in ipairs(GOT) do sum[key] = (sum[key] or 0) + (row[key] or 0) end
    for _, node in ipairs(row.nodes or {}) do
      sum.nodes[node.node] = (sum.nodes[node.node] or 0) + node.bytes
    end
  end
  return out
end

local NODES = 64 -- as in loam_got of loam.h

local function add_got(add, sum)
  local label = labels("strategy", sum.strategy)
  for node = 0, NODES - 1 do
    local bytes = sum.nodes[node]
    if bytes then
      add("loam_node_bytes", bytes, label .. "," .. labels("node", ("%d"):format(node)))
    end
  end
  local asks_nodes = sum.checked_bytes > 0 or sum.unknown_bytes > 0
  if asks_nodes then
    add("loam_placement_checked_bytes", sum.checked_bytes, label)
    add("loam_placement_elsewhere_bytes", sum.elsewhere_bytes, label)
    add("loam_placement_unknown_bytes", sum.unknown_bytes, label)
  end
  if sum.huge_asked_bytes > 0 or sum.huge_bytes > 0 then
    add("loam_huge_asked_bytes", sum.huge_asked_bytes, label)
    add("loam_huge_got_bytes", sum.huge_bytes, label)
  end
  add("loam_strategy_failed_requests", sum.at_limit, label .. "," .. labels("reason", "limit"))
  add("loam_strategy_failed_requests", sum.failed - sum.at_limit,
    label .. "," .. labels("reason", "memory"))
  add("loam_strategy_late_requests", sum.served_late, label)
end

local function add_sums(add, figures)
  add("loam_held_bytes", figures.region_bytes)
  add("loam_reserved_bytes", figures.reserved_bytes)
  add("loam_metadata_bytes", figures.metadata_bytes)
  add("loam_resident_bytes", figures.resident_bytes)
  add("loam_resident_loam_bytes", figures.resident_own_bytes)
  add("loam_denied_requests", figures.denied)
  add("loam_fallback_requests", figures.fallbacks)
  add("loam_failed_requests", figures.failed)
  add("loam_bad_frees", figures.bad_frees)
end

local function add_device(add, device)
  local function put(memory, reserved, used)
    local label = labels("device", ("%d"):format(device.device), "memory", memory)
    add("loam_device_pool_bytes", reserved, label)
    add("loam_device_pool_used_bytes", used, label)
  end
  put("device", device.reserved_bytes, device.used_bytes)
  put("pinned", device.pinned_reserved_bytes, device.pinned_used_bytes)
end

local function add_figures(add, found, clock)
  local figures = found.figures
  add_series(add, found.series)
  add("loam_tags_folded", found.folded)
  add_sums(add, figures)
  for _, device in ipairs(figures.devices or {}) do add_device(add, device) end
  for _, sum in ipairs(joined(figures.got or {})) do add_got(add, sum) end
  add("loam_figures_age_seconds", math.max(0, clock - found.read_at) / 1000)
  add("loam_figures_exact", one_if(not figures.inexact))
end

local function add_process(page, found, times)
  local status, figures = found.status, found.figures
  local add = adder(page, found)
  local about = labels("version", status.loam or "", "uid", ("%d"):format(status.uid or 0))
  -- Prometheus has a label `job` of its own.
  add("loam_process", 1, found.job and about .. "," .. labels("slurm_job", found.job) or about)
  add("loam_process_readable", one_if(figures))
  add("loam_process_stopped", one_if(status.state == "stopped"))
  add_policy(add, status)
  add_limits(add, status, figures)
  add_pressure(add, status.pressure)
  if figures then add_figures(add, found, times.clock) else add_board(add, status, times.unix) end
end

-- ---- the page

local function new_page()
  local page = {}
  for i, entry in ipairs(CATALOG) do
    local family = { name = entry[1], type = entry[2], unit = entry[3] or nil, help = entry[4],
                     samples = {} }
    page[i], page[entry[1]] = family, family
  end
  return page
end

local function add_exporter(page, list, times, version, others)
  local unreadable = 0
  for _, found in ipairs(list) do unreadable = unreadable + (found.figures and 0 or 1) end
  local function put(name, value, text) page[name].samples = { text or "", number(value) } end
  put("loam_processes", #list)
  put("loam_processes_unreadable", unreadable)
  put("loam_boards_unreadable", others)
  put("loam_page_seconds", times.spent_ms / 1000)
  put("loam_exporter", 1, labels("version", version))
end

-- The time at which a page is made.
---@class loam.PageTimes
---@field clock number ms of the clock
---@field unix number seconds since 1970
---@field spent_ms number that the figures took

-- Makes the families of a page from processes.
---@param list loam.Observed[]
---@param times loam.PageTimes
---@param version string of the command
---@param others number the boards of other versions of loam that programs use
---@return loam.MetricFamily[]
function families.of(list, times, version, others)
  local page = new_page()
  for _, found in ipairs(list) do add_process(page, found, times) end
  add_exporter(page, list, times, version, others)
  return page
end

return families
