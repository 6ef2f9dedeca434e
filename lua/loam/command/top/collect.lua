-- collect.lua - the figures of the processes that `loam top` shows. It reads boards, looks at the
-- memory of each process from outside, and keeps the last figures and the rates between two looks.
--
-- The processes do nothing for that. A look that costs much processor time is made less often
-- (schedule.lua), and so is the look that asks the kernel where pages are.

local boards = require("loam.command.boards")
local command_line = require("loam.command.command_line")
local json = require("loam.report.json")
local rank = require("loam.command.rank")
local schedule = require("loam.command.top.schedule")

local collect = {}

local LOOK_SHARE, PAGES_SHARE, BOARDS_SHARE = 0.02, 0.01, 0.005 -- of a core
local PAGES_MS = 10000 -- between two looks at pages, unless nodes are shown
local PAGES_BURST = 0.03 -- of an interval: the most that looks at pages take in one round
local GONE_MS = 3000   -- how long a process is shown that has ended

---@class loam.TopRow
---@field tag string
---@field strategy string
---@field kind string
---@field live_bytes number
---@field live_blocks number
---@field total_bytes number
---@field total_blocks number
---@field asleep_bytes number|nil the part of live_bytes that sleeps; nil: nothing does
---@field bytes_per_s number|nil between the last two looks; nil: there was one look
---@field blocks_per_s number|nil
---@field limit number|nil
---@field limit_used number|nil

---@class loam.TopProcess
---@field pid integer
---@field program string
---@field since_ms number when it took its place on the board
---@field state string
---@field hash string|nil of the live policy
---@field policy string|nil its name
---@field command string|nil its command line
---@field rank integer|nil in a parallel job
---@field job string|nil the job and step of Slurm
---@field figures table|nil the answer of the last look
---@field rows loam.TopRow[] by tag and strategy
---@field got table[]|nil what strategies got, by the last look at pages
---@field looked_at number|nil when the last look was, in milliseconds
---@field nodes table[]|nil the memory of loam on each node, by the last look at pages
---@field text string|nil the answer of the last look, as it came
---@field error string|nil why it cannot be read
---@field ended_at number|nil when it was seen to have ended

-- ---- The processes

local function note_status(process, status)
  process.state = status.state
  process.hash = status.hash
  process.policy = status.name
  process.pressure = status.pressure
end

local function add(self, pid, status)
  local program = status and status.program or self.context.posix.program(pid) or "?"
  local process = {
    pid = pid, program = program, rows = {}, cost = 0,
    since_ms = status and status.since_ms or 0, state = "running", due_at = 0, got_due_at = 0,
    is_on_board = status ~= nil,
  }
  if status then note_status(process, status) end
  process.command = command_line.of(self.context, status or process)
  process.rank, process.job = rank.of(self.context, status or process)
  self.by_pid[pid] = process
end

local function is_wanted(self, pid)
  return not self.wanted or self.wanted[pid]
end

-- Notes the rows of all boards. A process whose row has another time of start is another program.
local function read_boards(self, now)
  local context, seen, before = self.context, {}, self.context.posix.cpu()
  local rows, others = boards.living(context)
  self.others = self.wanted and {} or others
  for _, row in ipairs(rows) do
    local status = row.status
    local known = self.by_pid[status.pid]
    if is_wanted(self, status.pid) then
      seen[status.pid] = true
      if not known or known.ended_at or known.since_ms ~= (status.since_ms or 0) then
        add(self, status.pid, status)
      else
        note_status(known, status)
        known.command = command_line.of(context, status) -- servers change it
      end
    end
  end
  for pid, process in pairs(self.by_pid) do
    if process.is_on_board and not seen[pid] then process.ended_at = process.ended_at or now end
  end
  local cost = context.posix.cpu() - before
  self.boards_due_at = now + math.max(self.every, cost / BOARDS_SHARE)
end

-- Adds the processes that were named and are on no board.
local function add_named(self)
  for pid in pairs(self.wanted or {}) do
    if not self.by_pid[pid] and not self.has_started then add(self, pid) end
  end
end

local function forget_ended(self, now)
  for pid, process in pairs(self.by_pid) do
    if process.ended_at and now - process.ended_at >= GONE_MS then self.by_pid[pid] = nil end
  end
end

-- ---- A look

local function key_of(row)
  return row.tag .. "\0" .. row.strategy .. "\0" .. row.kind
end

local SUMS = { "live_bytes", "live_blocks", "total_bytes", "total_blocks" }

-- Joins rows with one tag and one name of a strategy: the options of the strategy were edited.
local function join_rows(list)
  local by_key, rows = {}, {}
  for _, row in ipairs(list) do
    local key = key_of(row)
    local first = by_key[key]
    if first then
      for _, name in ipairs(SUMS) do first[name] = first[name] + row[name] end
      if row.asleep_bytes then
        first.asleep_bytes = (first.asleep_bytes or 0) + row.asleep_bytes
      end
    else
      by_key[key] = row
      rows[#rows + 1] = row
    end
  end
  return rows, by_key
end

-- Fills in the rates of rows. Totals of a busy process are not exact, so a difference below 0 is 0.
local function fill_rates(rows, last, seconds)
  for _, row in ipairs(rows) do
    local old = last[key_of(row)]
    local bytes, blocks = row.total_bytes, row.total_blocks
    if old then bytes, blocks = bytes - old.total_bytes, blocks - old.total_blocks end
    row.bytes_per_s = math.max(0, bytes / seconds)
    row.blocks_per_s = math.max(0, blocks / seconds)
  end
end

local function note_figures(process, figures, now)
  local rows, by_key = join_rows(figures.rows)
  local seconds = process.looked_at and (now - process.looked_at) / 1000
  if seconds and seconds > 0 then fill_rates(rows, process.by_key, seconds) end
  process.rows, process.by_key, process.figures = rows, by_key, figures
  process.looked_at, process.error = now, nil
  if figures.got then process.got, process.nodes = figures.got, figures.nodes end
end

-- Notes an answer that equals the last one: the process allocated nothing. To read the text again
-- would take most of the time of a look.
local function note_same(process, now)
  for _, row in ipairs(process.rows) do row.bytes_per_s, row.blocks_per_s = 0, 0 end
  process.looked_at, process.error = now, nil
end

-- A process that can no longer be read may have ended: the boards, or /proc, tell that.
local function note_failure(self, process, words, now)
  process.error = words
  if process.is_on_board then
    self.boards_due_at = 0
  elseif not self.context.posix.exists(("/proc/%d"):format(process.pid)) then
    process.ended_at = process.ended_at or now
  end
end

local ELSEWHERE = "process %d: it runs in another PID namespace, such as a container"

local function look(self, process, shows_pages)
  local context = self.context
  local now = context.posix.clock()
  -- In this PID namespace, another process has the process id.
  if process.state == "unknown" then
    process.error = ELSEWHERE:format(process.pid)
    return
  end
  local has_got = now >= process.got_due_at and self.pages_left > 0
  local before = context.posix.cpu()
  local text, root = context.api.figures(process.pid, process.root, has_got)
  local is_same = text ~= nil and text == process.text
  local answer = not is_same and text and json.decode(text)
  if is_same then note_same(process, now)
  elseif answer then note_figures(process, answer, now)
  else note_failure(self, process, root, now) end
  process.root, process.text = text and root, text
  local cost = context.posix.cpu() - before
  if has_got then
    local period = shows_pages and self.every or PAGES_MS
    self.pages_left = self.pages_left - cost
    process.got_due_at = now + math.max(period, cost * self.n / PAGES_SHARE)
  else
    process.cost = cost
  end
end

-- ---- A round

local function living(self)
  local list = {}
  for _, process in pairs(self.by_pid) do
    if not process.ended_at then list[#list + 1] = process end
  end
  table.sort(list, function(a, b) return a.pid < b.pid end)
  return list
end

local function plan_looks(self, list)
  local costs = {}
  for i, process in ipairs(list) do costs[i] = process.cost end
  for i, wait in ipairs(schedule.waits(costs, self.every, LOOK_SHARE)) do
    local process = list[i]
    process.due_at = (process.looked_at or 0) + wait
  end
end

-- Half an interval is no delay: a round that begins a moment early looks at all processes.
local function is_due(self, process, now)
  return not process.looked_at or now >= process.due_at - self.every / 2
end

---@param context loam.Context
---@param pids integer[]|nil the processes; nil: all that are on boards
---@param every number milliseconds between two rounds
function collect.new(context, pids, every)
  local wanted = pids and {}
  for _, pid in ipairs(pids or {}) do wanted[pid] = true end
  return { context = context, wanted = wanted, every = every, by_pid = {}, boards_due_at = 0,
           n = 1 }
end

-- Reads the boards and looks at the processes whose turn it is.
---@param shows_pages boolean whether the nodes of pages are shown, so they are looked up more often
---@param reads_all boolean|nil whether the pages of all processes are looked up in this round
---@return loam.TopProcess[] all processes, also those that have just ended, by process id
function collect.round(self, shows_pages, reads_all)
  local now = self.context.posix.clock()
  if shows_pages and not self.showed_pages then
    for _, process in pairs(self.by_pid) do process.got_due_at = 0 end
    reads_all = true
  end
  self.showed_pages = shows_pages
  self.pages_left = reads_all and math.huge or self.every * PAGES_BURST
  if now >= self.boards_due_at - self.every / 2 then read_boards(self, now) end
  add_named(self)
  self.has_started = true
  local list = living(self)
  self.n = math.max(1, #list)
  plan_looks(self, list)
  for _, process in ipairs(list) do
    if is_due(self, process, now) then look(self, process, shows_pages) end
  end
  if self.boards_due_at == 0 then read_boards(self, now) end
  forget_ended(self, now)
  local all = {}
  for _, process in pairs(self.by_pid) do all[#all + 1] = process end
  table.sort(all, function(a, b) return a.pid < b.pid end)
  return all
end

-- Returns whether all processes that were named have ended.
function collect.is_over(self)
  if not self.wanted then return false end
  for _, process in pairs(self.by_pid) do
    if not process.ended_at then return false end
  end
  return true
end

return collect
