-- run - a command with its malloc under a policy.
--
-- The preload library does the work; this finds it, checks the policy first so that a broken one
-- is told before anything starts, and becomes the command.

local run = {
  summary = "runs a command with its malloc under a policy",
  usage = "--policy FILE [--watch] [--lenient] -- COMMAND [ARGUMENT]...",
  takes = { name = "COMMAND", least = 1, rest = true },
  about = [[
Allocations of the command and of the programs that it starts are decided by the policy,
under the tag malloc.MODULE of the program or library that makes them. A policy that is
refused is told and nothing is started: exit status 2. 126 and 127 mean, as in a shell,
that the command could not be run or was not found. Static and setuid programs run as if
loam were not there.

A free that is wrong is told and ends the program, as in the C library; LOAM_BAD_FREE=report
or =ignore lets it go on. LOAM_EVENTS=stderr tells of every policy that goes live, and of
what a strategy of it could not give, the first time. What touches guarded memory is told
with whose block it was, unless LOAM_GUARD_REPORT=0. A value that is none of these is told,
and is as if it were not set.]],
  options = {
    { "policy", "FILE", "the policy", kind = "path", required = true },
    { "watch", nil, "follow edits of FILE while the command runs" },
    { "lenient", nil, "run with the built-in default if the policy is refused" },
  },
  example = [[
  $ loam run --watch --policy numpy.lua -- python3 train.py
]],
}

local LIBRARY = "libloam-preload.so"
local CANNOT_RUN, NOT_FOUND = 126, 127

-- Beside the binary, where it is installed, where it is built.
local PLACES = {
  ".", "../lib/loam", "../lib64/loam", "../lib/x86_64-linux-gnu/loam",
  "../lib/aarch64-linux-gnu/loam", "../bindings/preload",
}

---@return string path
local function find_library(world)
  local named = world.getenv("LOAM_PRELOAD")
  if named and named ~= "" then
    if world.posix.is_readable(named) then return world.posix.absolute(named) end
    world.fail("LOAM_PRELOAD names " .. named .. ", which cannot be read")
  end
  local program = world.posix.readlink("/proc/self/exe")
  if not program then
    world.fail("/proc/self/exe cannot be read; set LOAM_PRELOAD to the path of " .. LIBRARY)
  end
  local folder = program:match("^(.*)/")
  for _, place in ipairs(PLACES) do
    local path = folder .. "/" .. place .. "/" .. LIBRARY
    if world.posix.is_readable(path) then return path end
  end
  local words = "%s is not beside %s or in its lib folder; set LOAM_PRELOAD to its path"
  return world.fail(words:format(LIBRARY, program))
end

-- Why is asked for only where it is to be told: a program that starts waits for this.
---@return boolean refused, string? what the program is to know of the policy that was checked
local function check(world, path)
  local vetted = world.api.vet(path)
  if vetted then return false, vetted end
  local question = require("loam.cli.question")
  local answer = question.read(world, question.ask(world, "check", path, {}))
  return question.is_refused(world, answer), nil
end

-- The dynamic linker splits the list at spaces and colons, and knows no quoting.
local function preload_list(world, library)
  if library:find("[ :]") then
    world.fail(library .. ": the dynamic linker cannot preload from a path with a space or a colon")
  end
  local others = world.getenv("LD_PRELOAD")
  return others and others ~= "" and library .. ":" .. others or library
end

local function prepare(world, given, vetted)
  local path = world.posix.absolute(given.policy)
  if not path then world.fail("the current folder is gone; give --policy from the root") end
  local set = world.posix.setenv
  set("LD_PRELOAD", preload_list(world, find_library(world)))
  set("LOAM_POLICY", path)
  set("LOAM_WATCH", given.watch and "1" or nil)
  set("LOAM_LENIENT", given.lenient and "1" or nil)
  set("LOAM_VETTED", vetted) -- its tests need not be run again by each program that starts
  -- What the command starts later, perhaps amid an edit, is not stopped by a broken policy: the
  -- preload library is as strict as we are in this process alone.
  set("LOAM_RUN", tostring(world.posix.process()))
end

function run.run(world, given)
  local refused, vetted = check(world, given.policy)
  if refused then
    if not given.lenient then return 2 end
    world.warn("loam: " .. given[1] .. " runs with the built-in default\n")
  end
  prepare(world, given, vetted)
  world.finish()
  local errno, words = world.posix.exec(given)
  world.warn(("loam: %s: %s\n"):format(given[1], words))
  return errno == world.posix.ENOENT and NOT_FOUND or CANNOT_RUN
end

return run
