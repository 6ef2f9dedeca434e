-- stats.lua - shows the memory of a running program, by tag and strategy.

local boards = require("loam.command.boards")
local describe = require("loam.command.describe")
local figures = require("loam.command.figures")
local hosts = require("loam.command.hosts")
local json = require("loam.report.json")
local stats_groups = require("loam.command.stats_groups")
local terminal = require("loam.command.terminal")
local units = require("loam.command.units")

local stats = {
  summary = "shows the memory of a running program by tag and strategy",
  usage = "[PID] [--by KEYS] [--json]",
  takes = { name = "PID", most = 1 },
  about = [[
LIVE is the memory in use now, counted exactly; EVER is all memory allocated so
far. ASLEEP is the part of LIVE whose device memory loam_sleep has given back.
LIMIT is the limit of the strategy, how much of it all tags together use, and
how much they used at most (peak); of a limit that processes share, how much
all of them use, and how much this one (here). Below the table stand the
strategies whose memory is not on the nodes, or not on the huge pages, that
they ask for, and how the memory of several nodes is shared out: the kernel is
asked page by page. With --by, the rows are by other keys: `--by class` is a
histogram of block sizes, `--by tag,class` one for each tag. UP TO is the
largest request of a size class; aligned memory counts with its size rounded up
to the alignment. Without PID, shows the only program of yours that runs under
loam; if several run, lists them. The command reads the memory of the program;
the program does nothing for that, and may be stopped or hung. The kernel lets
root do so and, unless kernel.yama.ptrace_scope forbids it, the user of the
program; else the command asks the program over its socket. For a program that
was killed, the command shows the last figures that the program wrote on its
board, and how old they are: its largest strategies, with live memory as
counters say, the limits, and the tags whose policy reads req.live.]],
  options = {
    { "by", "KEYS", "a row for each of: tag, strategy, class (default tag,strategy)" },
    { "json", nil, "the answer as a JSON object, by tag, strategy and class" },
  },
  example = [[
  $ loam stats 4242
  TAG                       STRATEGY      LIVE  BLOCKS     EVER     BLOCKS
  malloc._multiarray_umath  arrays     1.5 GiB      12  200 GiB      1,532
  malloc.python3            plain     14.2 MiB  91,230  1.1 GiB  8,112,000
  $ loam stats 4242 --by strategy,class
  STRATEGY    UP TO      LIVE  BLOCKS      EVER     BLOCKS
  arrays    128 MiB   1.5 GiB      12   200 GiB      1,532
  plain          16   430 KiB  27,520  60.1 MiB  3,938,713
  plain          32  13.8 MiB  63,710     1 GiB  4,173,287
]],
}

-- Returns how full a limit is, and how full it was at most: "63% of 2 MiB, peak 88%"; or "63% of 2
-- MiB, 10% here, peak 88%" if processes share the limit. Without a limit, an empty text. A program
-- with an older version of loam tells no peak.
local function limit_text(row)
  if not row.limit then return "" end
  local function percent(format, bytes)
    return bytes and format:format(math.floor(100 * bytes / row.limit)) or ""
  end
  return ("%s of %s%s%s"):format(percent("%d%%", row.limit_used), units.exact(row.limit),
    percent(", %d%% here", row.limit_own), percent(", peak %d%%", row.limit_peak))
end

local TROUBLES = {
  { "fallbacks", "served by a fallback" },
  { "denied", "denied by the policy" },
  { "failed", "failed: no strategy of the chain could serve" },
}

-- Returns whether a row is of Python's memory. Its own allocator, pymalloc, maps memory by itself.
local function is_python(answer)
  for _, row in ipairs(answer.rows) do
    if row.tag and row.tag:find("^malloc%.[^ ]*python") then return true end
  end
  return false
end

-- Shows what the memory of the process is: loam's, and what others have mapped.
local function show_resident(context, answer)
  local all, own = answer.resident_bytes, answer.resident_own_bytes
  local files, stacks = answer.resident_file_bytes or 0, answer.resident_stack_bytes or 0
  local code = answer.resident_code_bytes or 0
  local rest = all - own - files - stacks - code
  local words = "resident %s, of which %s are loam's; files %s, stacks %s, JIT code %s, others %s\n"
  context.write(words:format(units.bytes(all), units.bytes(own), units.bytes(files),
    units.bytes(stacks), units.bytes(code), units.bytes(rest)))
  if rest > all / 4 and is_python(answer) then
    context.write("  others: mostly pymalloc, Python's own allocator; `loam run --python-malloc` "
      .. "brings it to loam\n")
  end
end

-- Shows what the pools of a device have, and how much of it is in live blocks.
local function show_device(context, device)
  local parts = {}
  local function add(words, reserved, used)
    if reserved == 0 then return end
    parts[#parts + 1] = ("%s %s, of which %s are in use"):format(words, units.bytes(reserved),
      units.bytes(used))
  end
  add("pools have", device.reserved_bytes, device.used_bytes)
  add("pinned memory", device.pinned_reserved_bytes, device.pinned_used_bytes)
  if #parts > 0 then
    context.write(("device %d: %s\n"):format(device.device, table.concat(parts, "; ")))
  end
end

local function show_totals(context, answer)
  context.write(("live %s in %s; ever %s in %s; %s held by pools, %s of bookkeeping\n"):format(
    units.bytes(answer.live_bytes), units.plural(answer.live_blocks, "block"),
    units.bytes(answer.total_bytes), units.plural(answer.total_blocks, "block"),
    units.bytes(answer.region_bytes), units.bytes(answer.metadata_bytes)))
  if answer.resident_bytes then
    show_resident(context, answer)
  end
  for _, device in ipairs(answer.devices or {}) do show_device(context, device) end
  if answer.inexact then
    context.write("the program changed while it was read: the figures are not exact\n")
  end
  for _, trouble in ipairs(TROUBLES) do
    local n = answer[trouble[1]] or 0
    if n > 0 then context.write(("%s %s\n"):format(units.plural(n, "request"), trouble[2])) end
  end
  if (answer.bad_frees or 0) > 0 then
    context.write(context.paint("red", units.plural(answer.bad_frees, "bad free")) .. "\n")
  end
end

local function nodes_text(got)
  local out = {}
  for i, node in ipairs(got.nodes) do
    out[i] = ("%s on node %d"):format(units.bytes(node.bytes), node.node)
  end
  return table.concat(out, ", ")
end

-- Returns how many requests a strategy could not serve, how many of them for its limit, and how
-- full the limit is now. An edit may have changed the limit since those requests.
local function failed_text(got)
  local all = units.plural(got.failed, "request")
  if (got.at_limit or 0) == 0 then
    return all .. ", because there was no such memory; LOAM_EVENTS=stderr prints the reason"
  end
  local now = got.limit and ("; now %s of %s are used"):format(units.bytes(got.limit_used),
    units.exact(got.limit)) or ""
  local how_many = got.at_limit < got.failed and units.count(got.at_limit) .. " of them " or ""
  return ("%s, %sbecause it was at its limit%s"):format(all, how_many, now)
end

-- Shows what a strategy asked for and the kernel did not give.
local function show_got(context, got)
  local function complain(format, ...)
    context.write(context.paint("yellow", terminal.plain(got.strategy)) .. ": " ..
      format:format(...) .. "\n")
  end
  if got.failed > 0 then complain("could not serve %s", failed_text(got)) end
  if got.elsewhere_bytes > 0 then
    complain("%s of the %s examined are on other nodes than it asks for (all: %s)",
      units.bytes(got.elsewhere_bytes), units.bytes(got.checked_bytes), nodes_text(got))
  elseif #got.nodes > 1 then
    context.write(("%s: of the %s examined, %s\n"):format(terminal.plain(got.strategy),
      units.bytes(got.checked_bytes), nodes_text(got)))
  end
  if (got.unknown_bytes or 0) > 0 then
    complain("the kernel does not show on which nodes its memory is (see `loam doctor`)")
  end
  if got.huge_asked_bytes == 0 and got.huge_bytes > 0 then
    complain("%s have huge pages against huge = false: the program itself asked the kernel for "
      .. "them", units.bytes(got.huge_bytes))
  elseif got.huge_bytes < got.huge_asked_bytes then
    complain("only %s of %s have huge pages", units.bytes(got.huge_bytes),
      units.bytes(got.huge_asked_bytes))
  end
end

-- By key: the column that shows it. The column of a size class shows the largest request of the
-- class.
local COLUMN = {
  { "tag", "TAG", function(row) return describe.tag(row.tag) end },
  { "strategy", "STRATEGY", describe.strategy_name },
  { "class", "UP TO", function(row)
    return stats_groups.is_unknown(row) and "any" or units.exact(row.to)
  end },
}

-- Returns whether any of the groups has more than 0 of a figure.
local function has_any(groups, figure)
  for _, group in ipairs(groups) do
    if (group[figure] or 0) > 0 then return true end
  end
  return false
end

-- Shows the rows of an answer by keys (loam.StatsKeys).
local function show_groups(context, answer, keys)
  local rows, right, shown = { {} }, {}, {}
  local groups = stats_groups.of(answer.rows, keys)
  local is_limited = keys.strategy and not keys.class and has_any(groups, "limit")
  local heads = { "LIVE", "BLOCKS", "EVER", "BLOCKS" }
  local has_sleepers = has_any(groups, "asleep_bytes")
  if has_sleepers then heads[#heads + 1] = "ASLEEP" end
  if is_limited then heads[#heads + 1] = "LIMIT" end
  for _, column in ipairs(COLUMN) do
    if keys[column[1]] then
      shown[#shown + 1] = column
      right[#shown] = column[1] == "class"
      rows[1][#shown] = column[2]
    end
  end
  for _, row in ipairs(groups) do
    local cells = {}
    for i, column in ipairs(shown) do cells[i] = column[3](row) end
    local numbers = { units.bytes(row.live_bytes), units.count(row.live_blocks),
                      units.bytes(row.total_bytes), units.count(row.total_blocks) }
    if has_sleepers then numbers[#numbers + 1] = units.bytes(row.asleep_bytes) end
    if is_limited then numbers[#numbers + 1] = limit_text(row) end
    for _, cell in ipairs(numbers) do
      cells[#cells + 1] = cell
      right[#cells] = true
    end
    rows[#rows + 1] = cells
  end
  for _, head in ipairs(heads) do table.insert(rows[1], head) end
  context.write(terminal.table(rows, right, context.paint))
end

local function show(context, answer, keys)
  show_groups(context, answer, keys)
  show_totals(context, answer)
  for _, got in ipairs(answer.got or {}) do show_got(context, got) end
end

-- Shows rows below a head; shows nothing without rows.
local function show_rows(context, head, rows, right, left_out, one, many)
  if #rows == 0 then return end
  table.insert(rows, 1, head)
  context.write(terminal.table(rows, right, context.paint))
  if (left_out or 0) > 0 then
    context.write(("%s had no place on the board\n"):format(units.plural(left_out, one, many)))
  end
end

local function show_last_strategies(context, status)
  local rows = {}
  for i, use in ipairs(status.strategies or {}) do
    rows[i] = { use.strategy, use.live_bytes and "about " .. units.bytes(use.live_bytes) or "?",
      units.count(use.small_blocks), units.bytes(use.held_bytes), units.count(use.failed) }
  end
  show_rows(context, { "STRATEGY", "LIVE", "SMALL BLOCKS", "HELD", "FAILED" }, rows,
    { [2] = true, [3] = true, [4] = true, [5] = true }, status.strategies_left_out, "strategy",
    "strategies")
  return #rows > 1
end

-- The bytes of the largest small block. A larger block takes whole pieces of so many bytes.
local PIECE = 65536

-- Returns about how many bytes of LIVE are in blocks of more than PIECE bytes: the small blocks of
-- a strategy are listed by size class. Returns 0 if a list is not complete.
local function large_bytes(status, use)
  if not use.classes or (status.classes_left_out or 0) > 0 then return 0 end
  local rest = use.live_bytes or 0
  for _, class in ipairs(use.classes) do rest = rest - class.to * class.blocks end
  return rest < PIECE and 0 or rest
end

-- Shows the size classes of the strategies, and below them the memory that has no class. A row of a
-- program with an older version of loam has none.
local function show_last_classes(context, status)
  local rows = {}
  for _, use in ipairs(status.strategies or {}) do
    for _, class in ipairs(use.classes or {}) do
      rows[#rows + 1] = { use.strategy, units.exact(class.to),
        "about " .. units.count(class.blocks) }
    end
  end
  show_rows(context, { "STRATEGY", "UP TO", "BLOCKS" }, rows, { [2] = true, [3] = true },
    status.classes_left_out, "size class", "size classes")
  for _, use in ipairs(status.strategies or {}) do
    local large = large_bytes(status, use)
    if large > 0 then
      context.write(("%s: about %s more, in blocks of more than 64 KiB\n"):format(
        terminal.plain(use.strategy), units.bytes(large)))
    end
  end
end

local function show_last_limits(context, status)
  local rows = {}
  for i, limit in ipairs(status.limits or {}) do
    local all = limit.shared and (", and all programs use %s"):format(
      units.bytes(limit.shared_used_bytes)) or ""
    rows[i] = { limit.strategy, units.bytes(limit.used_bytes),
      limit.peak_bytes and units.bytes(limit.peak_bytes) or "?",
      units.bytes(limit.limit_bytes) .. all }
  end
  show_rows(context, { "STRATEGY", "USED", "PEAK", "LIMIT" }, rows,
    { [2] = true, [3] = true, [4] = true },
    status.limits_left_out, "limit")
  return #rows > 1
end

-- Says why LIVE may be more than the program has: it comes from counters, which count a large block
-- in whole pieces. USED comes from the limit itself.
local function explain_large(context, status)
  local limit_of, words = {}, nil
  for _, limit in ipairs(status.limits or {}) do limit_of[limit.strategy] = limit.limit_bytes end
  for _, use in ipairs(status.strategies or {}) do
    if (use.live_bytes or 0) > (limit_of[use.strategy] or math.huge) then
      words = "it may be more than the limit; USED is what the limit counts"
    elseif large_bytes(status, use) > 0 then
      words = words or "it may be more than the program had"
    end
  end
  if words then
    context.write(("LIVE counts a block of more than 64 KiB in whole pieces of 64 KiB, so %s\n")
      :format(words))
  end
end

local function show_last_tags(context, status)
  local rows = {}
  for i, tag in ipairs(status.tags or {}) do
    rows[i] = { describe.tag(tag.tag), "about " .. units.bytes(tag.live_bytes) }
  end
  if #rows == 0 and #(status.strategies or {}) > 0 then
    context.write("no tags: a program notes only those whose policy reads req.live\n")
  end
  show_rows(context, { "TAG", "LIVE" }, rows, { [2] = true }, status.tags_left_out, "tag")
end

-- Shows the figures on a board of a process that can be neither read nor asked: those that the
-- process wrote there last.
local function show_last(context, status, keys)
  local now = context.now()
  context.write(("%s: %s; its last figures, of %s\n"):format(describe.program(status),
    boards.state(status, now), units.ago(status.updated_at, now)))
  local has_strategies = show_last_strategies(context, status)
  if keys.class then show_last_classes(context, status) end
  local has_limits = show_last_limits(context, status)
  explain_large(context, status)
  show_last_tags(context, status)
  if not has_strategies and not has_limits then
    context.write("it noted no figures of its memory\n")
  end
end

function stats.run(context, given)
  local keys = stats_groups.keys(given.by)
  local pid = hosts.living(context, given[1], "stats")
  local text, is_last, words = figures.find(context, pid)
  if words then context.warn("loam stats: " .. words .. "\n") end
  if given.json then
    context.write(text .. "\n")
  elseif is_last then
    show_last(context, json.decode(text), keys)
  else
    show(context, json.decode(text), keys)
  end
  return 0
end

return stats
