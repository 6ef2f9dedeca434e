-- ps.lua - lists the programs of this user that run under loam.

local boards = require("loam.command.boards")
local command_line = require("loam.command.command_line")
local json = require("loam.report.json")
local rank = require("loam.command.rank")
local terminal = require("loam.command.terminal")

local ps = {
  summary = "lists the programs that run under loam",
  usage = "[--all] [--json]",
  about = [[
Lists each process of yours that runs under loam and has a place on a board,
with its live policy; for root, those of all users. Nothing is asked of the
processes, so stopped and hung ones are listed too. With --all, also lists
processes that have ended, as long as the file with their last figures is kept:
until their whole tree has ended, and ten minutes more if a process of it was
killed or ended by _exit.

RANK is the rank of a process that mpirun or srun started, and JOB its job and
step of Slurm. COMMAND is the command line that ps(1) shows, up to 4096 bytes;
a terminal shows as much of it as the line has room for.]],
  options = {
    { "all", nil, "also processes that have ended" },
    { "json", nil, "a JSON object: what `loam status --json` shows of each" },
  },
  example = [[
  $ loam ps
   PID  PROGRAM  STATE    GENERATION  POLICY  FILE    LAST RELOAD  COMMAND
  4242  python3  running           3  numpy   /p.lua  ok           python3 a.py
]],
}

local function row(status, now)
  local last = status.last or {}
  return {
    ("%d"):format(status.pid), status.program or "",
    status.rank and ("%d"):format(status.rank) or "-", status.job or "-", boards.state(status, now),
    ("%d"):format(status.generation), status.name ~= "" and status.name or "-",
    status.path ~= "" and status.path or "-", last.ok == false and "refused" or "ok",
    status.command or "-",
  }
end

local HEAD = { "PID", "PROGRAM", "RANK", "JOB", "STATE", "GENERATION", "POLICY", "FILE",
               "LAST RELOAD", "COMMAND" }
local OPTIONAL = { RANK = true, JOB = true, COMMAND = true }
local RIGHT = { PID = true, RANK = true, GENERATION = true }

-- Returns the lines without the optional columns in which no process has a value.
local function without_empty(lines)
  local out, right = {}, {}
  for i in ipairs(lines) do out[i] = {} end
  for i, head in ipairs(HEAD) do
    local is_shown = not OPTIONAL[head]
    for at = 2, #lines do is_shown = is_shown or lines[at][i] ~= "-" end
    for at, cells in ipairs(is_shown and lines or {}) do table.insert(out[at], cells[i]) end
    if is_shown then right[#out[1]] = RIGHT[head] end
  end
  return out, right
end

local LEAST = 20 -- characters of a command line, however narrow the terminal is

-- Cuts command lines, the last column, to the room that a terminal has beside the other columns.
local function cut_commands(context, lines)
  local others, last = {}, #lines[1]
  for i, cells in ipairs(lines) do others[i] = { unpack(cells, 1, last - 1) } end
  local used = terminal.width(terminal.table(others):match("^[^\n]*")) + 2
  local room = math.max(LEAST, context.posix.screen.size() - used)
  for i = 2, #lines do
    lines[i][last] = terminal.shortened(terminal.plain(lines[i][last]), room)
  end
end

local function show(context, rows)
  local lines = { HEAD }
  for _, found in ipairs(rows) do lines[#lines + 1] = row(found.status, context.now()) end
  local shown, right = without_empty(lines)
  if shown[1][#shown[1]] == "COMMAND" and context.posix.is_terminal(1) then
    cut_commands(context, shown)
  end
  context.write(terminal.table(shown, right, context.paint))
end

function ps.run(context, given)
  local rows, others = (given.all and boards.read or boards.living)(context)
  for _, found in ipairs(rows) do
    rank.add(context, found)
    command_line.add(context, found)
  end
  if given.json then
    local texts = {}
    for i, found in ipairs(rows) do texts[i] = found.text end
    local paths = boards.other_paths(others)
    context.write('{"programs":[' .. table.concat(texts, ",") .. "]"
      .. (paths and ',"other_boards":' .. json.encode(paths) or "") .. "}\n")
  elseif #rows > 0 then
    show(context, rows)
  elseif #others == 0 then
    context.warn(boards.none_words(others, context) .. "\n")
  end
  boards.warn_of_others(context, others, "ps", "and are not listed")
  return 0
end

return ps
