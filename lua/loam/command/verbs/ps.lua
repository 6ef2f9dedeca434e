-- ps.lua - lists the programs of this user that run under loam.

local boards = require("loam.command.boards")
local terminal = require("loam.command.terminal")

local ps = {
  summary = "lists the programs that run under loam",
  usage = "[--all] [--json]",
  about = [[
Lists each process of yours that runs under loam with a control socket, with its live
policy; for root, those of all users. Nothing is asked of the processes, so stopped and hung
ones are listed too. With --all, also lists processes that have ended, as long as the file
with their last words is kept: until their whole tree has ended, and ten minutes more if a
process of it was killed or ended by _exit.]],
  options = {
    { "all", nil, "also processes that have ended" },
    { "json", nil, "a JSON object: what `loam status --json` shows of each" },
  },
  example = [[
  $ loam ps
   PID  PROGRAM  STATE    GENERATION  POLICY      FILE                LAST RELOAD
  4242  python3  running           3  production  /etc/loam/prod.lua  ok
]],
}

local function row(status, now)
  local last = status.last or {}
  return {
    ("%d"):format(status.pid), status.program or "", boards.state(status, now),
    ("%d"):format(status.generation), status.name ~= "" and status.name or "-",
    status.path ~= "" and status.path or "-", last.ok == false and "refused" or "ok",
  }
end

local function show(context, rows)
  local lines = { { "PID", "PROGRAM", "STATE", "GENERATION", "POLICY", "FILE", "LAST RELOAD" } }
  for _, found in ipairs(rows) do lines[#lines + 1] = row(found.status, context.now()) end
  context.write(terminal.table(lines, { true, false, false, true }, context.paint))
end

function ps.run(context, given)
  local rows = given.all and boards.read(context) or boards.living(context)
  if given.json then
    local texts = {}
    for i, found in ipairs(rows) do texts[i] = found.text end
    context.write('{"programs":[' .. table.concat(texts, ",") .. "]}\n")
  elseif #rows > 0 then
    show(context, rows)
  else
    context.warn("no program of yours runs under loam\n")
  end
  return 0
end

return ps
