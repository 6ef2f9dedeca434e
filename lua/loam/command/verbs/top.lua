-- top.lua - shows the memory of running programs, live: on a terminal, as a list, or as JSON.

local arguments = require("loam.command.arguments")
local boards = require("loam.command.boards")
local collect = require("loam.command.top.collect")
local columns = require("loam.command.top.columns")
local groups = require("loam.command.top.groups")
local hosts = require("loam.command.hosts")
local json = require("loam.report.json")
local view = require("loam.command.top.view")

local top = {
  summary = "shows the memory of running programs, live",
  usage = "[PID...] [--by WHAT] [--every T] [--count N] [--sort COLUMN]\n"
    .. "                [--reverse] [--filter TEXT] [--json]",
  takes = { name = "PID" },
  about = [[
Shows live memory, how much was allocated in a second, the peak that top saw,
how much has GROWN since top looked first, and how full limits are, of all
programs that `loam ps` lists, or of the given processes: by tag, strategy,
NUMA node, process, or service (all processes of one program). `--sort grown`
shows a leak first. On a terminal, keys switch the grouping, sort, filter and
freeze; h lists them, q quits. Elsewhere, or with --count, writes a list after
each interval, one by default; with --json, one JSON object after each
interval.

COLUMN is the heading of a column, or one of these names: name, live, asleep,
blocks, rate, block_rate, peak, grown, limit, processes, age; by strategy,
service and process also fallbacks, failed and shortfall; by service and
process also policy; by process also pid, rank, state and command, and not
processes. By node there are name, live, peak, grown, processes and age.

top reads boards, and looks at the memory of each process from outside, without
asking it: the processes do nothing for that. Large programs are looked at less
often, so that the looks take a few percent of one core; AGE is the time since
the last look. To write a list or an object takes more where there are
thousands of tags. A process that cannot be read is shown with the reason; one
that has ended stays for three seconds.]],
  options = {
    { "by", "WHAT", "tag (default), strategy, node, process or service" },
    { "every", "T", "the interval, such as 500ms or 5s; 1s by default", kind = "time" },
    { "count", "N", "ends after N intervals", kind = "number", least = 1 },
    { "sort", "COLUMN", "the column that decides the order (default live)" },
    { "reverse", nil, "turns the order around" },
    { "filter", "TEXT", "only names, or command lines, with this text in them" },
    { "json", nil, "a JSON object after each interval" },
  },
  example = [[
  $ loam top --by strategy --count 1
  1 process, 1.5 GiB live in 91,242 blocks; 120 MiB/s in 40,210 blocks/s
  0 fallbacks, 0 failed, 0 denied, shortfall 0 B
  policy production 93f7fe4ec807f526 in 1
  STRATEGY    LIVE v  BLOCKS  BYTES/S  BLOCKS/S  LIMIT  ...
  arrays     1.5 GiB      12  119 MiB        30  [########--]  ...
]],
}

local EVERY_MS, EVERY_LEAST_MS = 1000, 100

-- ---- Arguments

local function check_word(option, word, words)
  for _, known in ipairs(words) do
    if word == known then return word end
  end
  return arguments.misused(("--%s: '%s' is none of %s"):format(option, arguments.plain(word),
    table.concat(words, ", ")))
end

local function every_text(ms)
  return ms % 1000 == 0 and ("%ds"):format(ms / 1000) or ("%dms"):format(ms)
end

local function read_options(given)
  given.by = check_word("by", given.by or "tag", groups.NAMES)
  given.sort = columns.id_of(given.by, given.sort or "live")
    or check_word("sort", given.sort, columns.ids(given.by))
  given.every = given.every or EVERY_MS
  if given.every < EVERY_LEAST_MS then
    arguments.misused(("--every: %s is less than %dms, the shortest interval"):format(
      every_text(given.every), EVERY_LEAST_MS))
  end
  given.every_text = every_text(given.every)
end

local function read_pids(context, given)
  if #given == 0 then return nil end
  local pids = hosts.pids(given)
  for _, pid in ipairs(pids) do
    if not context.posix.exists("/proc/" .. pid) then
      context.fail(("process %d: there is no such process"):format(pid))
    end
  end
  return pids
end

-- ---- Lists and JSON

-- Returns the groups to show, in their order.
local function ordered(given, processes, peaks, now)
  local list = groups.build(processes, given.by, peaks, now)
  list = columns.filter(given.by, list, given.filter or "")
  local is_before = columns.order(columns.find(given.by, given.sort), given.reverse or false)
  return columns.first(list, is_before, #list)
end

local function show_list(context, given, list, total)
  for _, line in ipairs(view.sums { total = total }) do context.write(line .. "\n") end
  local lines = view.table(list, given.by, given.sort, given.reverse or false)
  for i, line in ipairs(lines) do
    context.write((i == 1 and context.paint("bold", line) or line) .. "\n")
  end
  if given.count and given.count > 1 then context.write("\n") end
end

local function whole(n)
  return n and math.floor(n + 0.5)
end

local KEYS = { "name", "live_bytes", "live_blocks", "asleep_bytes", "peak_bytes",
               "grown_bytes", "limit",
               "limit_used", "fallbacks", "failed", "shortfall_bytes", "processes", "age_ms" }

local function json_group(group, by)
  local row = {}
  for _, key in ipairs(KEYS) do row[key] = group[key] end
  for _, key in ipairs { "live_bytes", "peak_bytes" } do row[key] = row[key] or 0 end -- no look yet
  row.bytes_per_s, row.blocks_per_s = whole(group.bytes_per_s), whole(group.blocks_per_s)
  if group.ended then row.ended = true end
  if by == "tag" then row.name = group.key end
  if by == "node" then row.node = tonumber(group.key) end
  if by ~= "process" then return row end
  local process = group.process
  row.pid, row.state, row.hash, row.error = process.pid, process.state, process.hash, process.error
  row.command, row.rank, row.job = process.command, process.rank, process.job
  if process.ended_at then row.state = "ended" end
  return row
end

local function json_total(total)
  local unreadable = {}
  for i, process in ipairs(total.unreadable) do
    unreadable[i] = { pid = process.pid, program = process.program, error = process.error }
  end
  return {
    processes = total.processes, live_bytes = total.live_bytes, live_blocks = total.live_blocks,
    asleep_bytes = total.asleep_bytes,
    bytes_per_s = whole(total.bytes_per_s), blocks_per_s = whole(total.blocks_per_s),
    fallbacks = total.fallbacks, failed = total.failed, denied = total.denied,
    shortfall_bytes = total.shortfall_bytes, policies = json.array(total.policies),
    unreadable = json.array(unreadable),
  }
end

local ORDER = { "by", "every_ms", "total", "rows", "name" }

local function show_json(context, given, list, total)
  local rows = {}
  for i, group in ipairs(list) do rows[i] = json_group(group, given.by) end
  local answer = { by = given.by, every_ms = given.every, total = json_total(total),
                   rows = json.array(rows) }
  -- Nanoseconds since 1970 are too large for a double.
  context.write(('{"at":%d000000000,'):format(context.now()) .. json.encode(answer, ORDER):sub(2)
    .. "\n")
end

-- Fails if no process could be read and there is something that the user can do about it.
local function check_readable(context, total)
  local n = #total.unreadable
  if n > 0 and n == total.processes then context.fail(total.unreadable[1].error) end
end

-- Writes the groups after each interval. The first look only begins the first interval.
local function run_stream(context, collected, given)
  local peaks, clock = {}, context.posix.clock
  local count = given.count or (given.json and math.huge or 1)
  local processes = collect.round(collected, given.by == "node", true)
  local due = clock()
  groups.build(processes, given.by, peaks, due)
  check_readable(context, groups.total(processes))
  boards.warn_of_others(context, collected.others, "top", "and are not shown")
  if #processes == 0 and not given.json then
    context.warn(boards.none_words(collected.others, context) .. "\n")
    return 0
  end
  local done = 0
  while done < count and not collect.is_over(collected) do
    due = math.max(due + given.every, clock())
    if context.posix.wait(due - clock()) then return context.posix.signal_status() end
    processes = collect.round(collected, given.by == "node")
    local list, total = ordered(given, processes, peaks, clock()), groups.total(processes)
    if given.json then show_json(context, given, list, total)
    else show_list(context, given, list, total) end
    context.finish()
    done = done + 1
  end
  return 0
end

-- ---- The verb

local function wants_screen(context, given)
  local posix = context.posix
  return not given.json and not given.count and posix.is_terminal(0) and posix.is_terminal(1)
    and context.getenv("TERM") ~= "dumb"
end

function top.run(context, given)
  read_options(given)
  local pids = read_pids(context, given)
  local collected = collect.new(context, pids, given.every)
  if not wants_screen(context, given) then return run_stream(context, collected, given) end
  return require("loam.command.top.screen").run(context, collected, given)
end

return top
