-- occasion.lua - waits until a program has an occasion for a profile: a limit is nearly full, a
-- request failed, or a signal ended the program.
--
-- The command looks at the program from outside again and again. So the program does nothing for
-- it, and needs no memory: there is a profile also when memory has run out. If a signal has ended
-- the program, the profile shows the last look before the end.

local arguments = require("loam.command.arguments")
local boards = require("loam.command.boards")
local json = require("loam.report.json")
local terminal = require("loam.command.terminal")
local units = require("loam.command.units")

local occasion = {}

local NEAR = 0.9 -- of a limit, if --on near-limit names no share
local LOOK_MS = 100
local SHARE = 30 -- a look may take one part in so many of the time
local MISSES = 100 -- looks at a living process that may fail, one after the other
local END_MS = 2000 -- that a process which is gone may take to be noticed on its board

local function misused(word)
  arguments.misused(("--on: '%s' is not possible; write near-limit=90%%, failed or signal, with "
    .. "commas between them"):format(arguments.plain(word)))
end

-- Reads the value of --on, such as "near-limit=90%,failed,signal".
---@return table wanted {near = share of a limit, or nil, failed = boolean, signal = boolean}
function occasion.parse(text)
  local wanted = {}
  for word in (text .. ","):gmatch("([^,]*),") do
    local percent = word:match("^near%-limit=(%d+)%%$")
    local share = percent and tonumber(percent) / 100
    if share and share > 0 and share <= 1 then
      wanted.near = share
    elseif word == "near-limit" then
      wanted.near = NEAR
    elseif word == "failed" or word == "signal" then
      wanted[word] = true
    else
      misused(word)
    end
  end
  return wanted
end

-- Returns the strategy of which most of the limit is used, if that is the wanted share.
local function near_limit(answer, share)
  local most
  for _, row in ipairs(answer.rows) do
    local full = row.limit and row.limit > 0 and row.limit_used / row.limit
    if full and full >= share and (not most or full > most.full) then
      most = { full = full, row = row }
    end
  end
  return most and ("strategy '%s' uses %d%% of its limit, %s"):format(
    terminal.plain(most.row.strategy), math.floor(100 * most.full), units.exact(most.row.limit))
end

local function troubles(answer)
  return (answer.failed or 0) + (answer.denied or 0)
end

-- Returns why there is an occasion, in words; nil: there is none. `first` is the first answer.
local function reason_of(answer, first, wanted)
  local near = wanted.near and near_limit(answer, wanted.near)
  if near then return near end
  local failed = wanted.failed and troubles(answer) - troubles(first) or 0
  return failed > 0 and units.plural(failed, "request") .. " got no memory" or nil
end

-- Returns whether a process that is gone was ended by a signal: then it has not said on its board
-- that it ends.
local function was_killed(context, pid)
  for _ = 1, END_MS / LOOK_MS do
    local row = boards.find(context, pid)
    if not row then return false end
    if row.status.state == "ended" then return not row.status.announced end
    if context.posix.wait(LOOK_MS) then return false end
  end
  return false
end

-- Deals with a look that failed. Returns a reason if a signal ended the process; fails if it ended
-- otherwise, or if it lives and too many looks have failed; else returns nil.
local function missed(context, pid, wanted, last, misses, words)
  if context.posix.program(pid) then
    return misses > MISSES and context.fail(words) or nil
  end
  if not last then context.fail(words) end
  if wanted.signal and was_killed(context, pid) then return "a signal has ended the program" end
  return context.fail(("process %d has ended, and there was no occasion for a profile"):format(pid))
end

local MAPS_MOST = 64 * 2 ^ 20 -- bytes of a list of mappings

-- Notes a look. Returns it as occasion.wait returns it. A process that ends during a look has no
-- mappings any more: then it keeps the mappings that the look before has read.
local function note(context, pid, answer, began, before, wanted, keeps_samples)
  local samples = wanted.signal and keeps_samples and context.api.look_samples(pid, true) or nil
  local maps = samples and context.posix.read(("/proc/%d/maps"):format(pid), MAPS_MOST)
  if not samples and before then samples = before.samples end
  if (maps or "") == "" and before then maps = before.maps end
  return { answer = answer, samples = samples, maps = maps, at = began }
end

-- Waits until there is an occasion.
---@param wanted table the result of occasion.parse
---@param keeps_samples boolean whether the last look is to have the samples of stacks
---@return string|nil reason; nil: the user has interrupted
---@return table|nil last if a signal ended the program: the `answer` of the last look, its
---   `samples`, the text of its mappings then (`maps`), and `ago`, the milliseconds since then
function occasion.wait(context, pid, wanted, keeps_samples)
  local first, last, root
  local misses = 0
  while true do
    local reason
    local began = context.posix.clock()
    local text, found = context.api.figures(pid, root, false)
    if text then
      local answer = json.decode(text)
      first, root, misses = first or answer, found, 0
      reason = reason_of(answer, first, wanted)
      if reason then return reason end
      last = note(context, pid, answer, began, last, wanted, keeps_samples)
    else
      misses = misses + 1
      reason = missed(context, pid, wanted, last, misses, found)
    end
    local now = context.posix.clock()
    if reason then
      last.ago = now - last.at
      return reason, last
    end
    if context.posix.wait(math.max(LOOK_MS, SHARE * (now - began))) then return nil end
  end
end

return occasion
