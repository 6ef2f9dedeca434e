-- pages.lua - draws where the memory of a running program lies.

local arguments = require("loam.command.arguments")
local boards = require("loam.command.boards")
local hosts = require("loam.command.hosts")
local json = require("loam.report.json")
local summary = require("loam.command.pages.summary")
local units = require("loam.command.units")

local pages = {
  summary = "draws where the memory of a running program lies",
  usage = "[PID] [-o FILE.svg | --json]",
  takes = { name = "PID", most = 1 },
  about = [[
Writes a picture (SVG) of the memory of a program: for each strategy and NUMA
node, which parts of each 64 KiB are live, in thread caches or free, which are
on huge pages, and which have no memory, because they were never touched or
went back to the kernel. The largest blocks are listed with their tags. One
cell of the picture is 64 KiB, or more for a large program: the picture tells
how much. Without -o, the file is PROGRAM-PID.svg in the working directory. A
table of the strategies follows on the terminal: a strategy with much FREE and
little LIVE is fragmented, or keeps memory for reuse; HUGE PAGES has all memory
on such pages, also that of blocks below 2 MiB, which `loam stats` does not
look at. Without PID, shows the only program of yours that runs under loam.
Like `loam stats`, the command reads the memory of the program without stopping
it. Where the kernel forbids that, it fails: it never asks the program over a
socket. In the picture of a program that runs, some figures may be a moment
older than others.]],
  options = {
    { "output", "FILE", "where to write the picture, - for standard output; also -o FILE",
      kind = "path", short = "o" },
    { "json", nil, "the figures of the picture as a JSON object, and no picture" },
  },
  example = [[
  $ loam pages 4242 -o memory.svg
  memory.svg: 3,710 cells of 64 KiB, 229 MiB in memory, 97% of it live
  STRATEGY           NODE  IN MEMORY     LIVE   CACHED     FREE  HUGE PAGES
  arrays                0    214 MiB  212 MiB      0 B    2 MiB     210 MiB
  plain                 0   13.6 MiB   10 MiB  412 KiB  3.2 MiB         0 B
  loam's own memory     0    1.4 MiB        -        -        -         0 B
]],
}

-- Returns what the title of the picture says.
local function about_of(context, pid, answer)
  local row = boards.find(context, pid)
  local status = row and row.status or {}
  local path = context.posix.readlink(("/proc/%d/exe"):format(pid))
  local is_same = status.generation == answer.generation
  return {
    program = status.program or path and path:match("[^/]+$") or "a program",
    pid = pid, generation = answer.generation, policy = is_same and status.name or nil,
    hash = is_same and answer.generation > 0 and status.hash or nil,
    date = os.date("!%Y-%m-%d %H:%M UTC", context.now()),
  }
end

local function default_path(about)
  local name = about.program:gsub("[^%w._-]", "_")
  return ("%s-%d.svg"):format(name, about.pid)
end

-- Writes the picture to a file, and tells the user its scale and its sums, also by strategy.
local function save(context, path, text, answer)
  local ok, words = context.posix.write(path, text)
  if not ok then context.fail("cannot write " .. arguments.plain(words)) end
  local n, live = 0, answer.live_bytes - answer.absent_bytes
  for _, group in ipairs(answer.groups) do n = n + #group.cells end
  context.write(("%s: %s of %s, %s in memory, %d%% of it live\n"):format(arguments.plain(path),
    units.plural(n, "cell"), units.exact(answer.cell_bytes), units.bytes(answer.resident_bytes),
    answer.resident_bytes > 0 and 100 * live / answer.resident_bytes or 0))
  context.write(summary.table(answer, context.paint))
  if answer.inexact then
    context.write("the program changed while it was read: the figures are not exact\n")
  end
end

function pages.run(context, given)
  if given.json and given.output then
    arguments.misused("--json writes no picture, so it does not go with --output")
  end
  local pid = hosts.living(context, given[1], "pages")
  local text, words = context.api.pages(pid)
  if not text then context.fail(words) end
  if given.json then
    context.write(text .. "\n")
    return 0
  end
  local answer = json.decode(text)
  local about = about_of(context, pid, answer)
  local picture = require("loam.command.pages.picture").draw(answer, about)
  if given.output == "-" then
    context.write(picture)
  else
    save(context, given.output or default_path(about), picture, answer)
  end
  return 0
end

return pages
