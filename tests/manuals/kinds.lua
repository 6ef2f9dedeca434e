-- kinds.lua - runs a code block by the rule for its language and its first words.
--
-- Each kind is a function of the world (the scene's folders) and the block. It returns nil if the
-- block did what the manual shows, else a text that describes the difference.
--
-- Rules:
--   lua with loam.policy     saved as prod.lua, and checked by `loam check`
--   lua, c, cpp, rust, python   run as programs; c without main becomes the body of main
--   pycon                    an interactive session of Python; a manual's sessions run as one
--   cmake                    the end of a CMakeLists.txt, after project() and the program `host`
--   lines with "$ "          commands with their output; it is compared by shape.lua
--   other indented lines     commands, one in each line; each must end with status 0
--
-- A comment after a line that prints is the printed line. In Python, a comment after an expression
-- is its value, if the comment begins like a value.
local commands = require("commands")
local shape = require("shape")

local kinds = {}

local function text_of(block) return table.concat(block.lines, "\n") .. "\n" end

local function write(path, text)
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
end

local function lines_of(path)
  local lines = {}
  for line in io.lines(path) do lines[#lines + 1] = line end
  return lines
end

-- Runs a script of bash in the work folder. Returns whether its status was 0, and the printed
-- lines.
local function bash(world, script)
  local path = world.scene .. "/script"
  write(path, ("scene=%s\n. %s/scene.sh\ncd %s\n%s"):format(world.scene, world.scene, world.work,
    script))
  local printed = world.scene .. "/printed"
  local status = os.execute(("timeout -k 5 120 bash %s > %s 2>&1 < /dev/null"):format(path,
    printed))
  local lines = lines_of(printed)
  local work = world.work:gsub("%p", "%%%0") .. "/"
  for number, line in ipairs(lines) do
    lines[number] = line:gsub(work .. "refused/", ""):gsub(work, "")
  end
  return status == 0 or status == true, lines
end

-- Runs a command that must succeed, and compares the printed lines with the comments of the block.
-- `printer` is the pattern of a line that prints, and `comment` the pattern of its comment.
local function run_program(world, block, command, printer, comment)
  local ok, printed = bash(world, command)
  if not ok then return ("%s\n%s"):format(command, table.concat(printed, "\n")) end
  local shown = {}
  for _, line in ipairs(block.lines) do
    local words = line:match(printer) and line:match(comment)
    if words then shown[#shown + 1] = words end
  end
  local missing = shape.missing(shown, printed)
  return missing and ("it does not print: %s\nbut:\n%s"):format(missing,
    table.concat(printed, "\n"))
end

local function is_policy(block)
  return block.language == "lua" and text_of(block):find("loam.policy {", 1, true)
end

local hosts = { c = "host.c", cpp = "host.cc", lua = "host.lua" }

-- Saves a block that is a host, unless a host in this language is saved already.
function kinds.save_host(world, block)
  local name = hosts[block.language]
  if not name or is_policy(block) then return end
  local path = world.work .. "/" .. name
  local there = io.open(path)
  if there then return there:close() end
  write(path, text_of(block))
end

-- Saves a block that is a policy as prod.lua, unless the manual gives it another name.
function kinds.save_policy(world, block)
  if not is_policy(block) or world.mark_of(block, "file") then return end
  write(world.work .. "/prod.lua", text_of(block))
end

function kinds.file(world, block)
  write(world.work .. "/" .. world.mark_of(block, "file").value, text_of(block))
end

function kinds.lua(world, block)
  if is_policy(block) then
    write(world.work .. "/block.lua", text_of(block))
    return run_program(world, block, "loam check block.lua", "^$", "^$")
  end
  write(world.work .. "/block.lua", text_of(block))
  return run_program(world, block, "${LUAJIT:-luajit} block.lua", "print%(", "%-%- (.*)$")
end

function kinds.c(world, block)
  local text = text_of(block)
  if not text:find("int main", 1, true) then
    text = ("#include <loam.h>\n#include <stdio.h>\nint main(void) {\n%s}\n"):format(text)
  end
  write(world.work .. "/block.c", text)
  return run_program(world, block, "${CC:-cc} -Wall -Wextra -Werror block.c -o block "
    .. "$(pkg-config --cflags --libs loam) && ./block", "printf%(", "// (.*)$")
end

function kinds.cpp(world, block)
  write(world.work .. "/block.cc", text_of(block))
  return run_program(world, block, "${CXX:-c++} -std=c++17 -Wall -Wextra -Werror block.cc -o block "
    .. "$(pkg-config --cflags --libs loam) && ./block", "printf%(", "// (.*)$")
end

function kinds.rust(world, block)
  if os.execute("command -v rustc > /dev/null") ~= 0 then
    return world.skip(block, "rustc is not installed")
  end
  write(world.work .. "/block.rs", text_of(block))
  return run_program(world, block, "compile='rustc --edition 2021 -D warnings -L '$LD_LIBRARY_PATH"
    .. " && $compile --crate-type rlib --crate-name loam bindings/rust/src/lib.rs -l loam && "
    .. "$compile block.rs --extern loam=libloam.rlib -o block && ./block", "println!%(", "// (.*)$")
end

function kinds.python(world, block)
  write(world.work .. "/block.py", text_of(block))
  return run_program(world, block, "$LOAM_PYTHON tests/manuals/block.py block.py", "^$", "^$")
end

-- Returns a statement of Python that saves a block under its name.
local function saving(block, name)
  return (">>> _ = open(%q, 'w').write(%q)"):format(name, text_of(block)):gsub("\\\n", "\\n")
end

-- Runs all Python sessions of the manual as one session, at the first of them. The session has a
-- line for each line of the manual, so that doctest reports line numbers of the manual. It also
-- saves the files that the manual shows between the sessions.
function kinds.pycon(world, block)
  if world.has_session then return nil end
  world.has_session = true
  local lines, last = {}, 0
  for _, other in ipairs(world.blocks) do
    local name = world.mark_of(other, "file")
    if other.at > block.at and name then lines[other.at] = saving(other, name.value) end
    for number, line in ipairs(other.language == "pycon" and other.lines or {}) do
      lines[other.at + number - 1] = line
    end
    last = other.at + #other.lines
  end
  for number = 1, last do lines[number] = lines[number] or "" end
  write(world.work .. "/session", table.concat(lines, "\n") .. "\n")
  return run_program(world, block, "$LOAM_PYTHON -m doctest -o ELLIPSIS session", "^$", "^$")
end

function kinds.cmake(world, block)
  write(world.work .. "/CMakeLists.txt", "cmake_minimum_required(VERSION 3.25)\nproject(host C)\n"
    .. "add_executable(host host.c)\n" .. text_of(block))
  return run_program(world, block,
    "rm -rf made && cmake -S . -B made && cmake --build made && made/host", "^$", "^$")
end

-- Returns a map from process ids of the manual to those of running programs, from the files
-- pid.NUMBER.
local function pids_of(world)
  local pids = {}
  local list = assert(io.popen("cd " .. world.work .. " && grep -H . pid.* 2> /dev/null"))
  for line in list:lines() do
    local number, pid = line:match("^pid%.(%d+):(%d+)$")
    pids[number] = pid
  end
  list:close()
  pids["4242"] = pids["4242"] or pids["29813"]
  return pids
end

-- Returns the lines of a script that runs a command and then prints a line "@@" with its status.
-- `keeps` is the process id that the manual gives to a program that keeps running, or nil.
local function step(world, command, pids, keeps)
  local here = commands.here(command, world.scene, pids)
  if here:match("&$") and keeps then
    return ("setsid %s\necho $! > pid.%s\ndisown\necho; echo @@ 0\n"):format(here, keeps)
  elseif here:match("&$") then
    return "export TRAIN_SECONDS=600\n" .. here .. (here:find("train.py") and "\nsettle $!" or "")
      .. "\necho; echo @@ 0\n"
  end
  return here .. "\nstatus=$?\necho; echo @@ $status\n"
end

-- Returns a list with the result of each step of a script: { status, lines }.
local function results_of(printed)
  local results, lines = {}, {}
  for _, line in ipairs(printed) do
    local status = line:match("^@@ (%d+)$")
    if status then
      results[#results + 1], lines = { status = tonumber(status), lines = lines }, {}
    else
      lines[#lines + 1] = line
    end
  end
  return results, lines
end

-- Returns a text if a step did not do what the manual shows. `wanted.status` is the exit status
-- that the manual gives.
local function judge(wanted, result, rest)
  if not result then
    return ("it did not end: %s\n%s"):format(wanted.command, table.concat(rest, "\n"))
  end
  local printed = table.concat(result.lines, "\n")
  local may_be = wanted.status == 0 and commands.other_status(wanted.command)
  if result.status ~= wanted.status and result.status ~= may_be then
    return ("exit status %d: %s\n%s"):format(result.status, wanted.command, printed)
  end
  local missing = shape.missing(wanted.shown, result.lines)
  return missing and ("%s\ndoes not print: %s\nbut:\n%s"):format(wanted.command, missing, printed)
end

-- Runs steps { command, shown } one after another in one shell.
local function run_steps(world, block, steps)
  local before = {}
  for _, mark in ipairs(block.marks) do
    if mark.kind == "before" then before[#before + 1] = mark.value end
  end
  for _, wanted in ipairs(steps) do
    if commands.needs_program(wanted.command) then
      table.insert(before, 1, "start 29813 . --watch --service --policy prod.lua")
      break
    end
  end
  for _, command in ipairs(before) do
    local ok, printed = bash(world, commands.here(command, world.scene, pids_of(world)))
    if not ok then return ("before it, %s\n%s"):format(command, table.concat(printed, "\n")) end
  end
  local script = { "trap 'kill $(jobs -p) 2> /dev/null' EXIT\n" }
  local pids = pids_of(world)
  local keeps, status = world.mark_of(block, "keeps"), world.mark_of(block, "status")
  for number, wanted in ipairs(steps) do
    wanted.status = number == #steps and status and tonumber(status.value) or 0
    script[#script + 1] = step(world, wanted.command, pids, keeps and keeps.value)
  end
  local _, printed = bash(world, table.concat(script))
  local results, rest = results_of(printed)
  for number, wanted in ipairs(steps) do
    local fault = judge(wanted, results[number], rest)
    if fault then return fault end
  end
  return nil
end

-- Returns the commands of a block that the test runs. Counts the other commands as skipped.
local function chosen(world, block, steps)
  local list = {}
  for _, wanted in ipairs(steps) do
    local reason = commands.reason(wanted.command)
    if reason then
      world.skip(block, ("%s: %s"):format(wanted.command, reason))
    else
      list[#list + 1] = wanted
    end
  end
  return list
end

function kinds.commands(world, block)
  local steps = {}
  for _, line in ipairs(block.lines) do
    local command, comment = commands.split(line)
    local prints = comment and command:match("%./a%.out$")
    if command ~= "" then
      steps[#steps + 1] = { command = command, shown = prints and { comment } or {} }
    end
  end
  return run_steps(world, block, chosen(world, block, steps))
end

function kinds.session(world, block)
  local steps = {}
  for _, line in ipairs(block.lines) do
    local command = line:match("^%$ (.*)$")
    if command then
      steps[#steps + 1] = { command = command, shown = {} }
    else
      table.insert(steps[#steps].shown, line)
    end
  end
  return run_steps(world, block, chosen(world, block, steps))
end

-- Compares a block with the output of the command in its mark. Leaves out lines of input, after
-- ">>>". A message of loam is one line, which the manual breaks into several.
function kinds.output(world, block)
  local wanted = { command = world.mark_of(block, "output of").value, shown = {} }
  for _, line in ipairs(block.lines) do
    if not line:match("^>>> ") then table.insert(wanted.shown, line) end
  end
  if block.lines[1]:match("^loam: ") then wanted.shown = { table.concat(wanted.shown, " ") } end
  return run_steps(world, block, { wanted })
end

function kinds.text() return nil end

-- Compares all blocks of keys in the manual with the schemas. Does so once, at the first such
-- block.
function kinds.keys(world, block)
  local list = {}
  for _, other in ipairs(world.blocks) do
    local mark = other.marks[1]
    if mark and mark.kind == "keys" then list[#list + 1] = other end
  end
  return list[1] == block and require("keys").fault(list) or nil
end

-- Returns the function that runs a block, or nil if there is no rule for it.
function kinds.of(block)
  for _, mark in ipairs(block.marks) do
    if mark.kind == "output of" then return kinds.output end
    if mark.kind == "text" or mark.kind == "keys" or mark.kind == "file" then
      return kinds[mark.kind]
    end
  end
  if block.language then return kinds[block.language] end
  local first = block.lines[1]
  if first:match("^%$ ") then return kinds.session end
  local word = first:match("^[%w./+_-]+")
  local known = { loam = 1, luacheck = 1, cc = 1, ["g++"] = 1, cmake = 1, sudo = 1, python3 = 1 }
  return word and (known[word] or word:match("/")) and kinds.commands or nil
end

return kinds
