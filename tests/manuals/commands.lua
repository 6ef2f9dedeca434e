-- commands.lua - decides which commands of the manuals the test runs, and in which form.
local commands = {}

-- Patterns of commands that no manual's test runs, each with the reason.
local not_run = {
  { "^sudo ", "it needs root" },
  { "^tests/install", "it installs packages; system.installer tests it" },
  { "^tests/build", "it builds loam itself" },
  { "^tests/run", "it runs all tests" },
  { "^examples/run", "it is a test of its own" },
  { "^cmake %-B build", "it builds loam itself" },
  { "^cmake/site/build", "it makes the site; manual.site tests it" },
  { "^cmake/debian/build", "it builds packages; tests/long/debian tests it" },
  { "^/usr/bin/python3 %-m venv", "it builds the Python package again" },
  { "^/usr/bin/python3 %-m build", "it writes into the source tree; python.install makes a wheel" },
  { "^venv/bin/pip", "it builds the Python package again" },
  { "^prometheus ", "it runs until it is stopped; system.metrics has it" },
  { "^go tool pprof", "it needs Go; system.profile_readers reads the profiles" },
}

-- Exit statuses other than 0 that are answers: `diff` if the policies differ, `owner` if an address
-- is in no block.
local answers = { ["^loam diff "] = 1, ["^loam owner "] = 1 }

-- Returns the reason why a command is not run, or nil if it is run.
function commands.reason(command)
  for _, row in ipairs(not_run) do
    if command:match(row[1]) then return row[2] end
  end
  return nil
end

-- Returns the exit status, other than 0, with which a command may end.
function commands.other_status(command)
  for pattern, status in pairs(answers) do
    if command:match(pattern) then return status end
  end
  return 0
end

-- Returns a command with this scene's paths, ports and process ids in place of the manual's. `pids`
-- maps process ids of the manual to those of running programs. A command that would run for long,
-- or forever, is ended early; `loam wait` does not wait for programs of other tests.
function commands.here(command, scene, pids)
  local main = pids["29813"] or "PID"
  command = command:gsub("/etc/loam/", ""):gsub("/usr/local/", scene .. "/usr/local/")
  command = command:gsub("%f[%w]PID%f[%W]", main):gsub("%f[%w]ADDRESS%f[%W]", "0x1000")
  command = command:gsub("%f[%w]%d%d%d+%f[%W]", pids):gsub("%-%-for 30s", "--for 1s")
  command = command:gsub("127%.0%.0%.1:9464", "127.0.0.1:0")
  if command:match("^loam wait") and not command:match("%-%-pid") then
    command = ("%s --pid %s %s"):format(command, main, pids["32026"] or "")
  end
  if command:match("^loam metrics %-%-listen") and not command:match("&$") then
    command = "timeout --preserve-status -s INT 3 " .. command
  end
  return command
end

-- Returns whether a command needs the running program of the manuals.
function commands.needs_program(command)
  local waits_for_all = command:match("^loam wait") and not command:match("%-%-pid")
  return command:match("%f[%w]PID%f[%W]") or waits_for_all
    or command:match("%f[%w]29813%f[%W]") or command:match("%f[%w]4242%f[%W]")
end

-- Splits a line into the command and the comment after it. Returns nil for a missing comment.
function commands.split(line)
  local command, comment = line:match("^(.-)%s+# (.*)$")
  return command or line:gsub("%s+$", ""), comment
end

return commands
