-- workers.lua - runs a check for many seeds in several processes, and adds up the results.
--
-- The seeds are divided into chunks, and each chunk gets a new process, because a Lua state keeps
-- some memory of each policy that it has compiled. The counters are in shared memory, so the totals
-- are right to the last seed when a user ends the program with Ctrl-C.

local ffi = require("ffi")

ffi.cdef [[
int fork(void);
int waitpid(int pid, int *status, int options);
int getpid(void);
int kill(int pid, int signal);
int usleep(unsigned microseconds);
int prctl(int option, unsigned long value, ...);
void *signal(int number, void *handler);
void *mmap(void *address, size_t size, int protection, int flags, int fd, long offset);
void _exit(int status);
]]

local C = ffi.C

local CHUNK = 100            -- seeds of one process, if the work does not say
local PROGRESS = 10          -- seconds between two lines of progress
local POLL_US = 50000        -- between two checks of the processes
local GARBAGE_KIB = 200 * 1024 -- a process collects garbage at this size; most end before that
local SIGINT, SIGTERM, WNOHANG = 2, 15, 1
local PR_SET_PDEATHSIG = 1

local workers = {}

---@class loam.Work
---@field from integer the first seed
---@field count integer how many seeds
---@field jobs integer how many processes run at a time
---@field chunk integer|nil how many seeds one process checks
---@field counters string[] names; the check adds to them
---@field check fun(seed: integer, add: fun(name: string, n: number)): string|nil returns a message
---  if the seed shows a fault
---@field line fun(sums: table): string the totals in words

-- Makes the counters of all processes: shared[job * #names + i] is counter `names[i]`.
local function shared_counters(names, jobs)
  local bytes = 8 * #names * jobs
  local address = C.mmap(nil, bytes, 3, 0x21, -1, 0) -- read and write; shared and anonymous
  assert(ffi.cast("intptr_t", address) ~= -1, "there is no shared memory")
  return ffi.cast("double *", address)
end

local function say(text)
  io.stdout:write(text)
  io.stdout:flush()
end

-- Runs one chunk in this process, which is a child, and never returns.
local function run_chunk(work, first, last, counters)
  C.signal(SIGINT, nil) -- LuaJIT's handler would raise an error inside a policy
  C.prctl(PR_SET_PDEATHSIG, ffi.cast("unsigned long", SIGTERM))
  collectgarbage("stop")
  local index = {}
  for i, name in ipairs(work.counters) do index[name] = i - 1 end
  local function add(name, n) counters[index[name]] = counters[index[name]] + n end
  for seed = first, last do
    local ok, message = pcall(work.check, seed, add)
    if not ok or message then
      add("faults", 1)
      say(("seed %d: %s\n"):format(seed, tostring(message)))
    end
    add("seeds", 1)
    if collectgarbage("count") > GARBAGE_KIB then
      collectgarbage()
      collectgarbage("stop")
    end
  end
  io.stdout:flush()
  C._exit(0)
end

local function sums_of(work, shared, jobs)
  local sums = {}
  for i, name in ipairs(work.counters) do
    sums[name] = 0
    for job = 0, jobs - 1 do
      sums[name] = sums[name] + shared[job * #work.counters + i - 1]
    end
  end
  return sums
end

-- Starts a process for the next chunk in the place `job`, if there is one.
local function start(work, state, job)
  if state.next > state.last then return end
  local first, last = state.next, math.min(state.next + (work.chunk or CHUNK) - 1, state.last)
  state.next = last + 1
  io.stdout:flush()
  local pid = C.fork()
  assert(pid >= 0, "fork failed")
  if pid == 0 then run_chunk(work, first, last, state.shared + job * #work.counters) end
  state.job_of[pid], state.running = job, state.running + 1
end

-- Waits for processes and starts others, until all chunks are done.
local function serve(work, state)
  local status, told = ffi.new("int[1]"), os.time()
  while state.running > 0 do
    local pid = C.waitpid(-1, status, WNOHANG)
    if pid > 0 then
      local job = state.job_of[pid]
      state.job_of[pid], state.running = nil, state.running - 1
      if status[0] ~= 0 then state.died = state.died + 1 end
      start(work, state, job)
    else
      C.usleep(POLL_US)
    end
    if os.time() - told >= PROGRESS then
      told = os.time()
      say(work.line(sums_of(work, state.shared, work.jobs)) .. " so far\n")
    end
  end
end

-- Ends all processes, after an error or Ctrl-C.
local function stop(state)
  for pid in pairs(state.job_of) do C.kill(pid, SIGTERM) end
  for pid in pairs(state.job_of) do C.waitpid(pid, nil, 0) end
end

-- Runs the check for all seeds. Prints a line of totals from time to time and at the end, also
-- after Ctrl-C. Returns the exit status: 0, 1 if a seed showed a fault, 130 after Ctrl-C.
---@param work loam.Work
---@return integer
function workers.run(work)
  table.insert(work.counters, "seeds")
  table.insert(work.counters, "faults")
  local began = os.time()
  local state = {
    next = work.from, last = work.from + work.count - 1, running = 0, job_of = {}, died = 0,
    shared = shared_counters(work.counters, work.jobs),
  }
  for job = 0, work.jobs - 1 do start(work, state, job) end
  local ok, message = pcall(serve, work, state)
  if not ok then stop(state) end
  local sums = sums_of(work, state.shared, work.jobs)
  local is_interrupted = not ok and tostring(message):find("interrupted!", 1, true)
  say(("%s in %d s, seeds from %d%s\n"):format(work.line(sums), os.time() - began, work.from,
    is_interrupted and ", ended by Ctrl-C" or ""))
  if state.died > 0 then say(("%d processes died\n"):format(state.died)) end
  if is_interrupted then return sums.faults > 0 and 1 or 130 end
  if not ok then error(message, 0) end
  return (sums.faults > 0 or state.died > 0) and 1 or 0
end

return workers
