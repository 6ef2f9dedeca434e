-- reload.lua - makes a running program load its policy again, or another policy, and waits.
--
-- A program that follows the board of its tree is not asked: the command compiles the policy and
-- publishes it there, for all processes of the tree. A program with a service loads the policy
-- itself.

local hosts = require("loam.command.hosts")
local arguments = require("loam.command.arguments")
local boards = require("loam.command.boards")
local describe = require("loam.command.describe")
local manifest = require("loam.command.manifest")

local reload = {
  summary = "makes a running program load its policy again, or another one",
  usage = "PID [FILE] [--json]",
  takes = { name = "PID", least = 1, most = 2 },
  about = [[
Waits until the policy is live or refused. Exit status 0: it is live. 1: it was
refused; the full error is shown, and the program keeps the policy that it had.
3: it was overtaken, as another policy was published after it for the same
tree.

The policy is for all processes of a tree: those that one `loam run` started,
or a program whose LD_PRELOAD and LOAM_POLICY were set without it, and the
programs that it started. Each obeys the policy with its next request for
memory; one that requests none for two seconds is not waited for, and the
answer says so. A program with a service (`loam run --service`, or a host)
loads the policy for itself alone.]],
  options = { { "json", nil, "the answer as a JSON object" } },
  example = [[
  $ loam reload 4242 /etc/loam/prod.lua
  live: generation 4
]],
}

local PATIENCE_MS = 120000 -- that a program with a service has
local OBEYS_MS = 2000 -- that a process has to obey a publication
local STARTS_MS = 500 -- that a process has to take its place on a board
local LOOK_MS, LOOK_MOST_MS = 20, 160
local OVERTAKEN = 3 -- exit status

-- Sleeps. If a signal asks the command to end during that time, fails with `words`.
local function sleep(context, ms, words)
  if not context.posix.wait(ms) then return end
  error({ words = words, status = context.posix.signal_status() }, 0)
end

---@return string|nil path absolute
local function read_path(context, text)
  if not text then return nil end
  if text == "" then arguments.misused("FILE: the path is empty") end
  arguments.refuse_input(text)
  if text:find("[\n%z]") then arguments.misused("FILE must be a path on one line") end
  manifest.refuse(context, text)
  local path = context.posix.absolute(text)
  if not path then
    context.fail("the current folder was removed; write FILE as an absolute path")
  end
  return path
end

-- Tells how far a process is with a publication. A later publication overtakes it, unless that one
-- has the text which the file has now: then it counts as if it were this one. A row without
-- `latest` was read while a publisher wrote, and tells nothing.
---@param status table the row of the process
---@return "settled"|"overtaken"|nil settled: obeyed or refused; nil: none of these yet
local function progress(context, status, number, path)
  local latest = status.latest
  if not status.published or not latest then return nil end
  if status.published == number then return "settled" end
  if latest.number > number then
    if latest.hash ~= context.api.hash(path) then return "overtaken" end
    number = latest.number
  end
  return status.published >= number and "settled" or nil
end

-- Waits until a process has obeyed or refused a publication, or another one has overtaken it.
---@return table|nil status its entry on the board then; nil if there was none of these in time
---@return boolean|nil is_overtaken
local function wait_for(context, pid, number, path)
  local clock, nap_ms = context.posix.clock, LOOK_MS
  local ends = clock() + OBEYS_MS
  repeat
    local row = boards.find(context, pid)
    local how = row and progress(context, row.status, number, path)
    if how then return row.status, how == "overtaken" end
    sleep(context, nap_ms, "the policy is published, and the wait for its result was stopped")
    nap_ms = math.min(2 * nap_ms, LOOK_MOST_MS) -- a look reads the boards of all programs
  until clock() >= ends
  return nil
end

-- Publishes a policy for the tree of a process.
local function publish(context, status, path)
  path = path or status.path
  if path == "" then
    context.fail("the live policy came from no file: name one to reload")
  end
  local number, words = context.api.publish(status.board, path)
  if not number then return { ok = false, error = words, generation = status.generation } end
  for _, note in ipairs(context.api.shortcomings(status.board, status.pid)) do
    context.warn("loam: note: " .. note .. "\n")
  end
  local now, is_overtaken = wait_for(context, status.pid, number, path)
  if not now then
    return { ok = true, error = "", generation = status.generation, waits = true }
  elseif is_overtaken then
    words = ("another policy, with hash %s, was published after this one"):format(now.latest.hash)
    return { ok = false, error = words, generation = now.generation, overtaken = true }
  end
  return { ok = now.last.ok, error = now.last.error, generation = now.generation }
end

-- Waits for a process that has just started to take its place on the board of its tree.
---@return table|nil status its entry there; nil if it takes none in time
local function wait_for_place(context, pid)
  local ends = context.posix.clock() + STARTS_MS
  while context.posix.exists("/proc/" .. pid) do
    local row = boards.find(context, pid)
    if row and row.status.board and row.status.state ~= "ended" then return row.status end
    sleep(context, LOOK_MS, "the wait for the program was stopped, and nothing is published")
    if context.posix.clock() >= ends then return nil end
  end
  return nil
end

-- Asks the service of a program that is on no board of a tree. A program without a service has just
-- started, or does not run under loam.
local function ask(context, pid, path)
  local request = path and "reload " .. path or "reload"
  local answer, words, text = hosts.ask(context, pid, request, PATIENCE_MS)
  if answer then return answer, text end
  local status = wait_for_place(context, pid)
  return status and publish(context, status, path) or context.fail(words)
end

local function encode(answer)
  local json = require("loam.report.json")
  return json.encode(answer, { "ok" })
end

local function show(context, pid, answer, is_stopped)
  if answer.waits then
    context.write(("%s: process %d %sobeys with its next request for memory\n"):format(
      context.paint("green", "published"), pid, is_stopped and "is stopped; it " or ""))
  elseif answer.ok then
    context.write(("%s: generation %d\n"):format(context.paint("green", "live"), answer.generation))
  elseif answer.overtaken then
    context.warn(("%s: %s\n"):format(context.paint_error("red", "overtaken"), answer.error))
  else
    context.warn(("%s: generation %d stays live\n%s\n"):format(
      context.paint_error("red", "refused"), answer.generation or 0,
      answer.error or "no reason was given"))
  end
end

function reload.run(context, given)
  local pid, path = hosts.pid(given[1]), read_path(context, given[2])
  local row = boards.find(context, pid)
  if row and row.status.state == "ended" then
    context.fail(describe.program(row.status) .. " has ended")
  end
  local answer, text
  if row and row.status.board then answer = publish(context, row.status, path)
  else answer, text = ask(context, pid, path) end
  if given.json then context.write((text or encode(answer)) .. "\n")
  else show(context, pid, answer, row and row.status.state == "stopped") end
  return answer.ok and 0 or answer.overtaken and OVERTAKEN or 1
end

return reload
