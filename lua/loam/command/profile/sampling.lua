-- sampling.lua - switches the samples of a running program on and off, and reads them.
--
-- A wish is the interval with which a program is to sample. For a program that follows a board, the
-- command writes the wish on the board, and the program obeys with its next request for memory. If
-- the program has a service instead, the command asks over its socket.

local boards = require("loam.command.boards")
local hosts = require("loam.command.hosts")
local json = require("loam.report.json")

local sampling = {}

local OBEYS_MS = 2000 -- that a program has to obey a wish
local LOOK_MS = 20
local FOR_MS = 10000
local INTERVAL = 512 * 2 ^ 10

sampling.OFF = "off"

-- Reads the samples of a process, or the figures about them alone.
local function read(context, pid, is_whole)
  local text, words = context.api.look_samples(pid, is_whole)
  if not text then return context.fail(words) end
  return json.decode(text)
end

-- Gives a program a wish. The interval 0 means no samples. Fails if the program cannot be reached.
local function wish(context, pid, interval)
  local row = boards.find(context, pid)
  if row and row.status.board then
    local status = row.status
    local ok, words = context.api.wish_samples(status.board, pid, status.since_ms, interval)
    if not ok then context.fail(words) end
    return
  end
  local answer, words = hosts.ask(context, pid, ("sample %.0f"):format(interval))
  if not answer then context.fail(words) end
  if not answer.ok then context.fail(answer.error or "no reason was given") end
end

-- Leaves out the samples of an earlier session: a program that did not sample before, and does not
-- now, has not obeyed yet.
---@param before number the interval that the program had before the command gave it a wish
function sampling.of_session(answer, before)
  if before == 0 and answer.interval == 0 then answer.stacks, answer.seconds = {}, 0 end
  return answer
end

-- Waits until the program samples with this interval. Returns "obeyed", "late" or "interrupted".
local function wait_for(context, pid, interval)
  for _ = 1, OBEYS_MS / LOOK_MS do
    if read(context, pid).interval == interval then return "obeyed" end
    if context.posix.wait(LOOK_MS) then return "interrupted" end
  end
  return "late"
end

-- Makes a program sample with the interval that it had before; 0: not at all. Waits until it does,
-- so that the next command begins its own session. A program that has not obeyed will do so with
-- its next request.
---@return "obeyed"|"late"|"interrupted"
function sampling.restore(context, pid, before)
  wish(context, pid, before)
  return wait_for(context, pid, before)
end

-- Makes a program sample. Returns false if the user interrupts; the caller then restores the former
-- interval.
local function begin(context, pid, interval)
  if context.posix.wait(0) then return false end -- now a signal ends a wait, not the command
  wish(context, pid, interval)
  local how = wait_for(context, pid, interval)
  if how == "late" then
    context.warn(("loam profile: process %d has requested no memory for %d s; it samples from its "
      .. "next request on\n"):format(pid, OBEYS_MS / 1000))
  end
  return how ~= "interrupted"
end

-- Samples for a time. Returns the answer, or nil if the user interrupts.
local function sample_for(context, pid, interval, time_ms)
  if not begin(context, pid, interval) then return nil end
  context.warn(("loam profile: sampling process %d for %g s\n"):format(pid, time_ms / 1000))
  if context.posix.wait(time_ms) then return nil end
  return read(context, pid, true)
end

-- Makes a program sample until sampling.restore. Returns the interval that it had before, or nil if
-- the user interrupts.
---@param wanted number|nil the interval that the user named; nil: the present one, or the default
function sampling.switch_on(context, pid, wanted)
  local before = read(context, pid).interval
  if before > 0 and (not wanted or wanted == before) then return before end
  if begin(context, pid, wanted or INTERVAL) then return before end
  wish(context, pid, before)
  return nil
end

-- Reads the samples of a program after sampling.switch_on, which returned `before`.
function sampling.read(context, pid, before)
  return sampling.of_session(read(context, pid, true), before)
end

-- Returns the samples of a program, which is made to sample if it does not, or if it does so with
-- another interval. Returns nil if the user interrupts. The program then samples as it did before.
---@param wanted number|nil the interval that the user named
---@param time_ms number|nil how long to wait
---@param is_kept boolean|nil whether the program goes on sampling
function sampling.take(context, pid, wanted, time_ms, is_kept)
  local before = read(context, pid).interval
  if before > 0 and (not wanted or wanted == before) then
    if time_ms and context.posix.wait(time_ms) then return nil end
    return read(context, pid, true)
  end
  local found = sample_for(context, pid, wanted or INTERVAL, time_ms or FOR_MS)
  if found then sampling.of_session(found, before) end
  if not found or not is_kept then pcall(sampling.restore, context, pid, before) end
  return found
end

return sampling
