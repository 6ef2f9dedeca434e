-- move_job.lua - a job of a host that moves live memory, for rebalance and demote: starts the job,
-- shows its progress, reports at its end.

local describe = require("loam.command.describe")
local hosts = require("loam.command.hosts")
local terminal = require("loam.command.terminal")
local units = require("loam.command.units")

local move_job = {}

local EVERY_MS = 100
local CTRL_C = 130 -- exit status
local RIGHT = { [3] = true, [4] = true }

local function ask(context, pid, request)
  local answer, words, text = hosts.ask(context, pid, request, 30000)
  if not answer then context.fail(words) end
  if not answer.ok then context.fail(answer.error or "no reason was given") end
  return answer, text
end

local function percent(answer)
  if answer.bytes == 0 then return 100 end
  return math.floor(100 * answer.done / answer.bytes)
end

-- Shows the progress on one line of the terminal, which each call overwrites.
local function show_progress(context, answer)
  if not context.posix.is_terminal(2) then return end
  context.warn(("\r%3d%%  %s moved "):format(percent(answer), units.bytes(answer.moved)))
  if not answer.running then context.warn("\r" .. (" "):rep(40) .. "\r") end
end

-- Orders rows: those with the most bytes first.
local function is_before(a, b)
  if a.bytes ~= b.bytes then return a.bytes > b.bytes end
  return a.tag .. a.what .. a.why < b.tag .. b.what .. b.why
end

local RESULT = { right = "in place" } -- core's word for a result -> the word shown, if not core's

local function show(context, answer)
  local rows = { { "TAG", "RESULT", "BYTES", "BLOCKS", "WHY" } }
  table.sort(answer.rows, is_before)
  for _, row in ipairs(answer.rows) do
    rows[#rows + 1] = { describe.tag(row.tag), RESULT[row.what] or row.what,
                        units.bytes(row.bytes), units.count(row.blocks), row.why }
  end
  if #rows > 1 then context.write(terminal.table(rows, RIGHT, context.paint)) end
  context.write(("%s moved, %s in place already, %s refused\n"):format(units.bytes(answer.moved),
    units.bytes(answer.right), units.bytes(answer.refused)))
end

-- Tells whether a job that came to its end found no memory of the tag that it was for.
local function found_nothing(given, answer)
  return given.tag and not answer.running and answer.done >= answer.bytes
    and answer.moved + answer.right + answer.refused == 0
end

-- Returns why a job that was begun is no success, in words; nil: it is one.
local function trouble(context, given, pid, answer, is_interrupted)
  if found_nothing(given, answer) then
    return ("process %d has no memory of tag '%s', or of a tag under it"):format(pid,
      terminal.plain(given.tag))
  end
  if is_interrupted then
    return (context.posix.signal_status() == CTRL_C and "Ctrl-C" or "a signal")
      .. " stopped the move"
  end
  if not answer.running and answer.done < answer.bytes then
    return ("process %d ended the move at %d%%"):format(pid, percent(answer))
  end
  return nil
end

-- Waits for the end of a job that was begun. Fails if another job takes its place.
---@return table answer, string text the last answer of the host
---@return boolean is_interrupted by Ctrl-C or another signal
local function wait(context, pid, answer, text)
  local job, is_interrupted = answer.job, false
  while answer.running and answer.job == job do
    show_progress(context, answer)
    local stop = context.posix.wait(EVERY_MS)
    is_interrupted = is_interrupted or stop
    answer, text = ask(context, pid, stop and "move stop" or "moved")
  end
  show_progress(context, answer)
  if answer.job ~= job then
    local reason = answer.by_reload and "a reload with apply = \"live\"" or "another command"
    context.fail(("process %d has started another move, by %s: the result of this one is unknown")
      :format(pid, reason))
  end
  return answer, text, is_interrupted
end

-- Starts a job and waits for its end. Ctrl-C ends the job; memory that has been moved stays moved.
---@param request string
---@return integer exit status
function move_job.run(context, given, request)
  local pid = hosts.pid(given[1])
  local answer, text, is_interrupted = wait(context, pid, ask(context, pid, request))
  local words = trouble(context, given, pid, answer, is_interrupted)
  if not given.json and not found_nothing(given, answer) then show(context, answer) end
  if given.json and not words then context.write(text .. "\n") end
  if words and is_interrupted and not found_nothing(given, answer) then
    local status = context.posix.signal_status()
    error({ silent = true, status = status, words = words, answer = text }, 0)
  end
  if words then context.fail(words, text) end
  return 0
end

-- Makes a request from its words. The tag stands last, since it may have spaces.
function move_job.request(verb, words, tag)
  if tag then words[#words + 1] = "tag=" .. tag end
  return #words > 0 and verb .. " " .. table.concat(words, " ") or verb
end

return move_job
