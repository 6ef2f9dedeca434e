-- moving - what rebalance and demote share: a job in a host, watched to its end.

local describe = require("loam.cli.describe")
local hosts = require("loam.cli.hosts")
local terminal = require("loam.cli.terminal")
local units = require("loam.cli.units")

local moving = {}

local EVERY_MS = 100
local INTERRUPTED = 130 -- a shell's status for a command that Ctrl-C ended
local RIGHT = { [3] = true, [4] = true }

local function ask(world, pid, request)
  local answer, words, text = hosts.ask(world, pid, request, 30000)
  if not answer then world.fail(words) end
  if not answer.ok then world.fail(answer.error or "no reason was given") end
  return answer, text
end

local function percent(answer)
  if answer.bytes == 0 then return 100 end
  return math.floor(100 * answer.done / answer.bytes)
end

-- One line of a terminal, written over and over.
local function show_progress(world, answer)
  if not world.posix.is_terminal(2) then return end
  world.warn(("\r%3d%%  %s moved "):format(percent(answer), units.bytes(answer.moved)))
  if not answer.running then world.warn("\r" .. (" "):rep(40) .. "\r") end
end

local function is_before(a, b)
  if a.bytes ~= b.bytes then return a.bytes > b.bytes end
  return a.tag .. a.what .. a.why < b.tag .. b.what .. b.why
end

local function show(world, answer)
  local rows = { { "TAG", "", "BYTES", "BLOCKS", "WHY" } }
  table.sort(answer.rows, is_before)
  for _, row in ipairs(answer.rows) do
    rows[#rows + 1] = { describe.tag(row.tag), row.what, units.bytes(row.bytes),
                        units.count(row.blocks), row.why }
  end
  if #rows > 1 then world.write(terminal.table(rows, RIGHT, world.paint)) end
  world.write(("%s moved, %s were right, %s refused\n"):format(units.bytes(answer.moved),
    units.bytes(answer.right), units.bytes(answer.refused)))
end

-- What a program does by itself: it is no success of this command.
local function check_end(world, pid, answer)
  if not answer.running and answer.done < answer.bytes then
    world.fail(("process %d stopped it at %d%%"):format(pid, percent(answer)))
  end
end

-- Begins a job and waits for its end; Ctrl-C ends it where it is.
---@param request string
---@return integer status
function moving.run(world, given, request)
  local pid = hosts.pid(given[1])
  local answer, text = ask(world, pid, request)
  local job, interrupted = answer.job, false
  while answer.running and answer.job == job do
    show_progress(world, answer)
    local stop = world.posix.wait(EVERY_MS)
    interrupted = interrupted or stop
    answer, text = ask(world, pid, stop and "move stop" or "moved")
  end
  show_progress(world, answer)
  if answer.job ~= job then
    world.fail(answer.by_reload
      and ("process %d moves live memory anew, by a reload with apply = \"live\""):format(pid)
      or ("process %d has been told to move live memory again: how this ended is not known")
        :format(pid))
  end
  if given.json then world.write(text .. "\n") else show(world, answer) end
  if interrupted then return INTERRUPTED end
  check_end(world, pid, answer)
  return 0
end

-- Words of a request; the tag last, since it may have spaces.
function moving.request(verb, words, tag)
  if tag then words[#words + 1] = "tag=" .. tag end
  return #words > 0 and verb .. " " .. table.concat(words, " ") or verb
end

return moving
