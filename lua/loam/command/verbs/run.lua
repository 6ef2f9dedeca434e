-- run.lua - runs a command with its malloc under a policy.
--
-- The preload library does the work. This verb finds the library, checks the policy so that the
-- errors of a broken one are shown before anything starts, and replaces itself by the command.

local run = {
  summary = "runs a command with its malloc under a policy",
  failed = 2, -- as the other statuses are those of the command
  usage = "--policy FILE [--watch] [--service] [--lenient] [--guard [N]]\n"
    .. "                [--report FILE] [--python-malloc] -- COMMAND [ARGUMENT]...",
  takes = { name = "COMMAND", least = 1, rest = true },
  about = [[
The policy decides the allocations of the command and of the programs that it
starts, under the tag malloc.MODULE, where MODULE is the program or library
that allocates. If the policy is refused, its errors are shown, nothing is
started, and the exit status is 2; so it is if the policy or the preload
library cannot be read. As in a shell, 126 means that the command could not be
run, and 127 that it was not found. A program that is linked statically or with
musl, has 32 bits, or has more rights than its user runs as if loam were not
there, and a note says so.

The programs are not changed in any other way: they have no thread, socket or
open file of loam. With --watch, a small process beside them follows FILE and
publishes each policy that is not refused; each program obeys it with its next
request for memory. A policy that reads the free memory of NUMA nodes, or
memory pressure, gets such a process too, which reads the figures for all
programs. So does a command in a control group that limits its memory: when
little is left of memory.high or memory.max, or the group waits for memory for
a tenth of the time, the process raises an alarm, and the programs give back
the memory that they keep for reuse. It ends when all programs have ended. With
--service each program has a thread and a control socket instead, which `loam
rebalance` and `demote` need; the thread then follows FILE. A policy that moves
live memory (apply = "live") or reads the free memory of devices needs the
thread as well: `loam run` then turns --service on, and says so in one line.
Programs that drop their rights need to be without this thread: it keeps
capabilities that they drop, and programs that keep some as they change their
user, such as setpriv, abort.

With --guard the policy decides as before, and each block of host memory (1 in
N with a number) ends at a page that cannot be touched. An access behind its
end, or after its free, ends the program with a message that names the block.
`loam run` guards each block also if LD_PRELOAD names glibc's
libc_malloc_debug.so.0, and MALLOC_CHECK_, or glibc.malloc.check in
GLIBC_TUNABLES, is a number other than 0. A guarded block costs two system
calls and at least a page.

With --report, each process appends a report to FILE as it ends by exit or by
the return of main: its memory, live and in all, the tags and strategies with
most of it, how near each limit was, and the requests that got no memory. A
process that is killed, or ends by _exit or exec, writes none. With `--report
stderr`, only the process that `loam run` becomes reports, and prints its
report, unless it has closed standard error by then, as ls does.

A wrong free (of memory that is free already, or that was never allocated) ends
the program with a message, as in the C library. These variables of the
environment change what a program does. A program that finds a value which it
does not know says so, and uses the default:

  LOAM_BAD_FREE=report   a wrong free shows the message, and the program goes on
  LOAM_BAD_FREE=ignore   the program goes on without a message
  LOAM_EVENTS=stderr     shows all events: each policy that becomes live, the
                         first time that a strategy could not give what it
                         asks for, and others
  LOAM_EVENTS=none       shows nothing about a refused edit, nor when memory has
                         run out, nor why a program has no board or cannot be
                         asked
  LOAM_LAST_WORDS=FILE   adds a line to FILE when memory has run out: who has it
  LOAM_REPORT=FILE       reports at the end, as --report does; FILE is absolute,
                         or stderr
  LOAM_KEEP=1            keeps free memory for reuse, and gives none back to the
                         system
  LOAM_PRESSURE=0        raises no alarm when memory is short in the control
                         group
  LOAM_GUARD=N           guards blocks, as --guard does
  LOAM_GUARD_REPORT=0    does not show whose block it was when guarded memory is
                         touched]],
  options = {
    { "policy", "FILE", "the policy", kind = "policy", required = true },
    { "watch", nil, "load FILE again whenever it changes while the command runs" },
    { "service", nil, "give each program a service thread and a control socket" },
    { "lenient", nil, "run with the built-in default if the policy is refused" },
    { "guard", "N", "guard one block in N of each host strategy; all by default",
      kind = "number", least = 1, most = 2 ^ 32 - 1, pattern = "^%d+$", default = "1" },
    { "report", "FILE", "append a report of the memory as each program ends",
      kind = "path" },
    { "python-malloc", nil, "set PYTHONMALLOC=malloc: loam sees every object of Python" },
  },
  example = [[
  $ loam run --watch --policy numpy.lua -- python3 train.py
]],
}

local LIBRARY = "libloam-preload.so"
local CANNOT_RUN, NOT_FOUND = 126, 127

-- Folders of the library, from the folder of the `loam` binary: as built, and as installed.
local PLACES = {
  ".", "../lib/loam", "../lib64/loam", "../lib/x86_64-linux-gnu/loam",
  "../lib/aarch64-linux-gnu/loam", "../bindings/preload",
}

---@return string path
local function find_library(context)
  local named = context.getenv("LOAM_PRELOAD")
  if named and named ~= "" then
    if context.posix.is_readable(named) then return context.posix.absolute(named) end
    context.fail("LOAM_PRELOAD names " .. named .. ", which cannot be read")
  end
  local program = context.posix.readlink("/proc/self/exe")
  if not program then
    context.fail("/proc/self/exe cannot be read; set LOAM_PRELOAD to the path of " .. LIBRARY)
  end
  local folder = program:match("^(.*)/")
  for _, place in ipairs(PLACES) do
    local path = folder .. "/" .. place .. "/" .. LIBRARY
    if context.posix.is_readable(path) then return path end
  end
  local words = "%s was not found beside %s or in ../lib/loam; set LOAM_PRELOAD to its path"
  return context.fail(words:format(LIBRARY, program))
end

-- Checks the policy. A second, longer question gets the errors, only if it is refused: the
-- command waits for this. That question does not ask who may write the file, so a file that other
-- users can change is refused in the words of the third look. The third look also takes a file that
-- was mended in the meantime.
---@return boolean refused, string|nil vetted the value of LOAM_VETTED for the command
---@return string|nil why the policy needs the service thread
---@return boolean|nil needs_watcher the policy reads the free memory of NUMA nodes or memory
---pressure, or it shares limits with other processes
local function check(context, path)
  require("loam.command.manifest").refuse(context, path)
  local vetted, why, needs_watcher = context.api.vet(path)
  if vetted then return false, vetted, why, needs_watcher end
  local policy_query = require("loam.command.policy_query")
  local answer = policy_query.read(context, policy_query.ask(context, "check", path, {}))
  if policy_query.is_refused(context, answer) then return true, nil end
  vetted, why, needs_watcher = context.api.vet(path)
  if vetted then return false, vetted, why, needs_watcher end
  context.warn("loam: " .. why .. "\n")
  return true, nil
end

-- Makes LD_PRELOAD. The dynamic linker splits it at spaces and colons, and has no way to quote
-- them.
local function preload_list(context, library)
  if library:find("[ :]") then
    context.fail(library
      .. ": the dynamic linker cannot preload from a path with a space or a colon")
  end
  local others = context.getenv("LD_PRELOAD")
  return others and others ~= "" and library .. ":" .. others or library
end

-- Returns whether the user asks glibc's library to check the heap: by any number but 0.
local function is_check_wanted(context)
  local tunables = ":" .. (context.getenv("GLIBC_TUNABLES") or "")
  local levels = { context.getenv("MALLOC_CHECK_") or "",
                   tunables:match(":glibc%.malloc%.check=([^:]*)") }
  return (tonumber(levels[1]) or 0) ~= 0 or (tonumber(levels[2]) or 0) ~= 0
end

-- Sets LOAM_GUARD. If the user has also preloaded glibc's library that checks and traces the heap,
-- it watches a malloc that the program does not call under loam: then loam checks the heap in its
-- place, or a note says that nothing checks it.
---@param every number|nil of --guard
local function set_guard(context, every)
  local others = context.getenv("LD_PRELOAD")
  local library = others and others:match("libc_malloc_debug%.so[^ :]*")
  local is_replaced = library and not every and is_check_wanted(context)
  if is_replaced then every = 1 end
  if every then context.posix.setenv("LOAM_GUARD", ("%d"):format(every)) end
  if not library or context.getenv("LOAM_EVENTS") == "none" then return end
  local words = is_replaced
    and "loam checks the heap in place of %s: it guards each block, as --guard 1 does"
    or "%s checks and traces nothing, because loam serves malloc; --guard finds wrong frees and "
      .. "overflows"
  context.warn(("loam: note: " .. words .. "\n"):format(library))
end

-- Says why the program has no board, and which verbs need one. A program that follows the policy
-- file itself opens the folder too: with LOAM_EVENTS=stderr it gives the reason, so this line is
-- left out.
---@param words string why there is no board; with a path if the folder is the reason
---@param follows boolean the program has a service thread, or gets one for --watch
local function tell_no_board(context, words, follows)
  local events = context.getenv("LOAM_EVENTS")
  if events == "none" or (events == "stderr" and follows) then return end
  local hint = words:find("/", 1, true) and "LOAM_CONTROL_DIR=FOLDER names another folder"
    or "`loam stats` finds it by its process id"
  context.warn(("loam: warning: the program has no board: %s; so `loam ps`, `top`, `metrics`, "
    .. "`status`, `wait` and `reload` do not find it (%s, LOAM_EVENTS=none hides this line)\n")
    :format(words, hint))
end

-- Makes the board on which the command and the programs that it starts take places. A command that
-- runs `loam run` with a policy of its own gets a board of its own.
---@param policy string the absolute path of the policy file
---@param follows boolean as in tell_no_board
---@return string|nil path nil if there can be no board
local function make_board(context, policy, follows)
  if context.getenv("LOAM_CONTROL") == "0" then return nil end
  local path, words = context.api.make_board(policy)
  if not path then tell_no_board(context, words, follows) end
  return path
end

-- Starts the process that works for all programs of the tree. Without it each program follows the
-- policy file itself.
---@param path string|nil the policy file that it follows
---@return boolean started
local function start_watcher(context, board, path)
  local ok, words = context.api.watch(board, path)
  local instead = path and "; so each program follows the file by a thread of its own" or ""
  if not ok then context.warn("loam: warning: " .. words .. instead .. "\n") end
  return ok == true
end

---@param service boolean give each program a service thread and a control socket of its own
---@param needs_watcher boolean as check() returns it
local function prepare(context, given, vetted, service, needs_watcher)
  local path = context.posix.absolute(given.policy)
  if not path then
    context.fail("the current folder was removed; write --policy as an absolute path")
  end
  local set = context.posix.setenv
  set_guard(context, given.guard)
  set("LD_PRELOAD", preload_list(context, find_library(context)))
  set("LOAM_POLICY", path)
  -- A program may change its folder before loam looks for the folder of sockets.
  local control = context.getenv("LOAM_CONTROL_DIR")
  if control and control ~= "" then
    set("LOAM_CONTROL_DIR", context.posix.absolute(control) or control)
  end
  set("LOAM_LENIENT", given.lenient and "1" or nil)
  local report = given.report
  if report and report ~= "stderr" then report = context.posix.absolute(report) end
  if given.report and not report then
    context.fail("the current folder was removed; write --report as an absolute path")
  end
  if report then set("LOAM_REPORT", report) end
  if given["python-malloc"] then set("PYTHONMALLOC", "malloc") end
  local board = make_board(context, path, service or given.watch)
  set("LOAM_BOARD", board)
  set("LOAM_SERVICE", service and "1" or nil)
  -- Without a board, and where programs have a service, each program follows the file itself.
  local is_needed = given.watch or needs_watcher or context.api.has_limit()
  local has_watcher = board and not service and is_needed
    and start_watcher(context, board, given.watch and path or nil)
  local is_watched = given.watch and has_watcher
  set("LOAM_WATCH", given.watch and not is_watched and "1" or nil)
  set("LOAM_VETTED", vetted) -- so that programs need not run the policy's tests again as they start
  -- The process that tells of refused edits; exec keeps its id.
  set("LOAM_RUN", tostring(context.posix.process()))
end

-- Says so if loam cannot govern the program: its memory then is as without loam. The dynamic
-- linkers of musl and of 32-bit programs cannot load the library, so they get the LD_PRELOAD of the
-- user. Programs that a static program starts can load it.
---@param others string|nil the user's LD_PRELOAD
local function spare_if_not_governed(context, program, others)
  local why = context.posix.why_not_governed(program)
  if not why then return end
  if not why:find("statically", 1, true) then context.posix.setenv("LD_PRELOAD", others) end
  if context.getenv("LOAM_EVENTS") ~= "none" then
    context.warn(("loam: note: %s is %s, so loam does not govern it\n"):format(program, why))
  end
end

function run.run(context, given)
  local refused, vetted, why, needs_watcher = check(context, given.policy)
  if refused then
    if not given.lenient then return 2 end
    context.warn("loam: warning: " .. given[1] .. " runs with the built-in default\n")
  end
  local wants_service = given.service or context.getenv("LOAM_SERVICE") == "1"
  if why and not wants_service then
    context.warn(("loam: the policy %s, so each program gets a service thread, as with "
      .. "--service\n"):format(why))
  end
  local others = context.getenv("LD_PRELOAD")
  prepare(context, given, vetted, wants_service or why ~= nil, needs_watcher)
  spare_if_not_governed(context, given[1], others)
  context.finish()
  local errno, words = context.posix.exec(given)
  context.warn(("loam: %s: %s\n"):format(given[1], words))
  return errno == context.posix.ENOENT and NOT_FOUND or CANNOT_RUN
end

return run
