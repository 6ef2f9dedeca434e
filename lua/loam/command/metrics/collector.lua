-- collector.lua - the figures of all processes that run under loam, read from outside.
--
-- Boards say which processes live and which policies they have. The memory of a process is read by
-- context.api.look, as `loam stats` does. To read a process takes time in proportion to its live
-- blocks, so three rules bound the work. A process is read again only when its figures are older
-- than RESTS times as long as the reading took, and older than KEPT_MS. All readings for one page
-- end after the budget that the caller gives. A reading ends after PATIENCE_MS. A page shows the
-- last figures of a process that was not read for it, and their age.

local boards = require("loam.command.boards")
local folded_tags = require("loam.command.metrics.folded_tags")
local json = require("loam.report.json")
local rank = require("loam.command.rank")

local collector = {}

local KEPT_MS = 1000     -- figures serve all pages that are made within that time
local REFUSED_MS = 5000  -- a process that could not be read is tried again after that time
local RESTS = 100        -- so the readings of one process take at most 1 % of a CPU
local PATIENCE_MS = 2000 -- a reading that takes longer fails

-- A process, and the figures that were read from its memory.
---@class loam.Observed
---@field status table from its board
---@field rank integer|nil in a parallel job
---@field job string|nil the job and step of Slurm
---@field figures table|nil the answer to `stats`; nil: it could not be read yet
---@field tags loam.FoldedTags
---@field series table[]|nil rows of figures whose labels differ
---@field folded number|nil tags without series of their own
---@field read_at number|nil ms of the clock; nil: it was never read
---@field due_at number ms of the clock: it is not read again before
---@field error string|nil why the last reading failed

---@class loam.Collector
---@field context loam.Context
---@field tags number how many tags of a process have series of their own
---@field known table<string, loam.Observed>
---@field others number the boards of other versions of loam that programs use

---@return loam.Collector
function collector.new(context, tags)
  return { context = context, tags = tags, known = {}, others = 0 }
end

-- Returns a key of a process. Another process may get its id later, but has another start time.
local function key_of(status)
  return ("%d:%.0f"):format(status.pid, status.since_ms or 0)
end

-- Returns the key of a row of a board, and its process, with its new status. A process is added if
-- it is new.
local function observe(self, row)
  local key = key_of(row.status)
  local found = self.known[key]
  if not found then
    found = { due_at = 0, tags = folded_tags.new() }
    found.rank, found.job = rank.of(self.context, row.status)
  end
  found.status = row.status
  return key, found
end

-- Lists the living processes, and forgets those that have ended. Counts the boards of other
-- versions of loam.
local function find(self)
  local known, list = {}, {}
  local rows, others = boards.living(self.context)
  self.others = #others
  for _, row in ipairs(rows) do
    local key, found = observe(self, row)
    known[key], list[#list + 1] = found, found
  end
  self.known = known
  return list
end

-- Returns a row of each strategy that has a limit. The other rows of a reading are needed no more:
-- the program of any user may have hundreds of thousands.
local function with_limits(rows)
  local out, is_known = {}, {}
  for _, row in ipairs(rows) do
    if row.limit and not is_known[row.strategy] then
      is_known[row.strategy], out[#out + 1] = true, row
    end
  end
  return out
end

-- Reads the memory of one process. A reading that fails leaves the earlier figures.
local function read(self, found, patience_ms)
  local begin = self.context.posix.clock()
  local text, words = self.context.api.look(found.status.pid, patience_ms)
  local figures = text and json.decode(text)
  local now = self.context.posix.clock()
  found.error = not figures and (words or "its figures are no JSON") or nil
  if figures then
    found.figures, found.read_at = figures, now
    found.series, found.folded = folded_tags.fold(found.tags, figures.rows, self.tags)
    figures.rows = with_limits(figures.rows)
  end
  local rest = math.max(KEPT_MS, RESTS * (now - begin))
  found.due_at = now + (figures and rest or math.max(rest, REFUSED_MS))
end

-- Lists the processes to read now, those that have waited longest first. The id of a process in
-- another PID namespace names another process here, or none.
local function due(list, now)
  local out = {}
  for _, found in ipairs(list) do
    if found.due_at <= now and found.status.state ~= "unknown" then out[#out + 1] = found end
  end
  table.sort(out, function(a, b)
    if a.due_at ~= b.due_at then return a.due_at < b.due_at end
    return a.status.pid < b.status.pid
  end)
  return out
end

-- Reads the processes that are due, and returns all processes. The boards are read again after the
-- processes, so the page has no process that has ended in the meantime, and no figures of another
-- process that got its id.
---@param self loam.Collector
---@param budget_ms number the time that all readings may take
---@return loam.Observed[] in the order of their process ids
function collector.collect(self, budget_ms)
  local clock = self.context.posix.clock
  local list = find(self)
  local begin = clock()
  local waiting = due(list, begin)
  for _, found in ipairs(waiting) do
    local left = budget_ms - (clock() - begin)
    if left <= 0 then break end
    read(self, found, math.min(PATIENCE_MS, math.ceil(left)))
  end
  if #waiting == 0 then return list end
  local before = self.known
  local out = {}
  for _, found in ipairs(find(self)) do
    if before[key_of(found.status)] then out[#out + 1] = found end
  end
  return out
end

return collector
