-- hosts.lua - the running programs of this user that have loam: their list, and questions to one.

local json = require("loam.report.json")
local arguments = require("loam.command.arguments")
local boards = require("loam.command.boards")
local command_line = require("loam.command.command_line")
local describe = require("loam.command.describe")
local terminal = require("loam.command.terminal")

local hosts = {}

hosts.PATIENCE_MS = 2000 -- that a host has to answer

-- Reads a process id from an argument, or raises a usage error.
---@return integer
function hosts.pid(text)
  local pid = text:match("^%d+$") and #text < 10 and tonumber(text)
  if not pid or pid < 1 then
    arguments.misused(("'%s' is not a process id; `loam ps` lists them"):format(text))
  end
  return pid
end

-- Reads process ids from arguments, each id once.
---@param texts string[]
---@return integer[]
function hosts.pids(texts)
  local pids, seen = {}, {}
  for _, text in ipairs(texts) do
    local pid = hosts.pid(text)
    if not seen[pid] then pids[#pids + 1] = pid end
    seen[pid] = true
  end
  return pids
end

-- Returns the answer as text, or nil and an error in words. If no host listens in the folder that
-- the environment names, looks in the folder of the process's board.
local function ask_anywhere(context, pid, request, patience_ms)
  local text, words = context.api.ask(pid, request, patience_ms)
  if text or not words:find("cannot be asked by this user", 1, true) then return text, words end
  local row = boards.find(context, pid)
  local folder = row and row.status.folder
  if not folder or folder == context.getenv("LOAM_CONTROL_DIR") then return nil, words end
  context.posix.setenv("LOAM_CONTROL_DIR", folder)
  return context.api.ask(pid, request, patience_ms)
end

-- Says why a process is on no board although it runs under loam, and what the user can do; nil if
-- it does not run under loam.
local function lost_words(context, pid)
  local maps = boards.maps(context, pid)
  local reads = ("; `loam stats %d` reads its memory"):format(pid)
  local removed = maps:match(" (/[^\n]*%.board) %(deleted%)\n")
  if removed then return ("its board %s has been removed%s"):format(removed, reads) end
  if not maps:find("/libloam[^/\n]*%.so") then return nil end
  local _, others = boards.read(context)
  local other = boards.other_words(context, maps, others)
  if other then return other .. ": start the program again" end
  return "has neither a board nor a control socket: it asked for none, as LOAM_CONTROL=0 does, or "
    .. "what it printed at its start says why" .. reads
end

local STATUS_MOST = 65536 -- bytes of /proc/PID/status

-- Says of which process a thread is, if `pid` is the id of a thread that is not the first one of
-- its process. Tools such as `top -H` show ids of threads.
---@return string|nil
function hosts.thread_words(context, pid)
  local text = context.posix.read(("/proc/%d/status"):format(pid), STATUS_MOST)
  local owner = text and text:match("\nTgid:%s*(%d+)")
  if not owner or tonumber(owner) == pid then return nil end
  return ("%d is a thread of process %s; name the process"):format(pid, owner)
end

-- Says why a process that is on no board did not answer, if nothing listens for it.
local function explain_unknown(context, pid, words)
  local path = words:match("cannot be asked by this user: nothing listens at (.*)$")
  if not path then return words end
  if not context.posix.exists("/proc/" .. pid) then
    return ("process %d: there is no such process"):format(pid)
  end
  local thread = hosts.thread_words(context, pid)
  if thread then return thread end
  local name = describe.program { program = context.posix.program(pid) or "?", pid = pid }
  local lost = lost_words(context, pid)
  if lost then return ("%s runs under loam, but %s"):format(name, lost) end
  return ("%s does not run under loam, or another user started it: nothing listens at %s"):format(
    name, path)
end

local STAT_MOST = 4096 -- bytes of /proc/PID/stat

local function is_stopped(context, pid)
  local text = context.posix.read(("/proc/%d/stat"):format(pid), STAT_MOST)
  return text and text:find("^.*%) [Tt] ") ~= nil
end

-- Returns whether a process follows the board of its tree: then it has no service to ask.
local function follows_board(row)
  return row ~= nil and row.status.board ~= nil
end

-- Says why a process did not answer: `words`, or more where its board or /proc tells more.
local function explain(context, pid, words)
  local row = boards.find(context, pid)
  local ms = words:match("^host %d+ did not answer within (%d+) ms$")
  if ms then
    return ("%s did not answer within %g s%s"):format(row and describe.program(row.status)
      or "process " .. pid, ms / 1000, is_stopped(context, pid) and ": it is stopped" or "")
  end
  if not row then return explain_unknown(context, pid, words) end
  if row.status.state == "ended" then return describe.program(row.status) .. " has ended" end
  if not follows_board(row) then return words end
  return describe.program(row.status)
    .. " has no service to ask: start it with `loam run --service`"
end

-- Sends a request to a host and reads its answer. Says so if the wait may be long.
---@return table|nil answer
---@return string|nil words if there is no answer
---@return string|nil text of the answer
function hosts.ask(context, pid, request, patience_ms)
  if patience_ms and is_stopped(context, pid) and not follows_board(boards.find(context, pid)) then
    context.warn(("loam: note: process %d is stopped; it answers when it goes on\n"):format(pid))
  end
  local text, words = ask_anywhere(context, pid, request, patience_ms or hosts.PATIENCE_MS)
  if not text then return nil, explain(context, pid, words) end
  local answer, message = json.decode(text)
  if not answer then return nil, ("process %d: its answer is %s"):format(pid, message) end
  return answer, nil, (text:gsub("\n+$", ""))
end

-- Lists the hosts of this user, without the process of the command: it is a host as well when it is
-- started by a shell that runs under loam.
---@return integer[] ascending
function hosts.all(context)
  local pids, words = context.api.hosts()
  if not pids then context.fail(words) end
  local others, own = {}, context.posix.process()
  for _, pid in ipairs(pids) do
    if pid ~= own then others[#others + 1] = pid end
  end
  table.sort(others)
  return others
end

local MOST_WORDS = 50 -- characters of a command line

-- Lists programs to choose from, and ends the command with status 2.
---@param found table[] pairs of a process id and a program's command line or name
local function list_to_choose(context, found, name)
  context.warn(("loam %s: %d programs run under loam; choose one:\n"):format(name, #found))
  for _, pair in ipairs(found) do
    local words = terminal.shortened(terminal.plain(pair[2] or "?"), MOST_WORDS)
    context.warn(("  loam %s %d    # %s\n"):format(name, pair[1], words))
  end
  error({ silent = true, status = 2 }, 0)
end

local function list(context, pids, name)
  local found = {}
  for i, pid in ipairs(pids) do
    local answer = hosts.ask(context, pid, "status")
    found[i] = { pid, answer and answer.program }
  end
  list_to_choose(context, found, name)
end

-- Returns the hosts whose board this command can read, or that have no board.
local function readable(context, others)
  local pids = {}
  for _, pid in ipairs(hosts.all(context)) do
    local maps = #others > 0 and boards.maps(context, pid) or ""
    if not boards.other_words(context, maps, others) then pids[#pids + 1] = pid end
  end
  return pids
end

-- Returns the process id of the only host. If there are several, lists them and ends the command.
local function choose(context, name, others)
  local pids = readable(context, others)
  if #pids == 0 then context.fail(boards.none_words(others, context)) end
  if #pids > 1 then list(context, pids, name) end
  return pids[1]
end

-- Returns the process id that `text` holds. Without a text, returns the only living program on a
-- board, or else with a socket; if there are several, lists them and ends the command.
---@param text string|nil
---@param name string the verb
---@return integer
function hosts.living(context, text, name)
  if text then return hosts.pid(text) end
  local rows, others = boards.living(context)
  local names = {}
  boards.warn_of_others(context, others, name, "and are not listed")
  if #rows == 0 then return choose(context, name, others) end
  if #rows == 1 then return rows[1].status.pid end
  for i, row in ipairs(rows) do
    names[i] = { row.status.pid, command_line.of(context, row.status) or row.status.program }
  end
  return list_to_choose(context, names, name)
end

return hosts
