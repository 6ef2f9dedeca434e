-- ps.lua - lists the programs of this user that run under loam.

local hosts = require("loam.command.hosts")
local terminal = require("loam.command.terminal")

local ps = {
  summary = "lists the programs that run under loam",
  usage = "[--json]",
  about = [[
Lists each program of yours that has a control socket, with its live policy. A program that
is stopped, or busy with a load, may not answer within 2 seconds; its process id is shown
with that message.]],
  options = { { "json", nil, "a JSON array of what `loam status --json` shows of each" } },
  example = [[
  $ loam ps
   PID  PROGRAM  GENERATION  POLICY      FILE                LAST RELOAD
  4242  python3           3  production  /etc/loam/prod.lua  ok
]],
}

local function row(status)
  local last = status.last or {}
  return {
    ("%d"):format(status.pid), status.program or "", ("%d"):format(status.generation),
    status.name ~= "" and status.name or "-", status.path ~= "" and status.path or "-",
    last.ok == false and "refused" or "ok",
  }
end

-- Asks all hosts. Returns their answers as tables; the answers as text, because a number in them
-- can be too large for a double; and the messages of hosts that did not answer.
local function ask_all(context)
  local found, texts, silent = {}, {}, {}
  for _, pid in ipairs(hosts.all(context)) do
    local answer, words, text = hosts.ask(context, pid, "status")
    found[#found + 1] = answer
    texts[#texts + 1] = text
    silent[#silent + 1] = words
  end
  return found, texts, silent
end

function ps.run(context, given)
  local found, texts, silent = ask_all(context)
  if given.json then
    context.write("[" .. table.concat(texts, ",") .. "]\n")
  elseif #found > 0 then
    local rows = { { "PID", "PROGRAM", "GENERATION", "POLICY", "FILE", "LAST RELOAD" } }
    for _, status in ipairs(found) do rows[#rows + 1] = row(status) end
    context.write(terminal.table(rows, { true, false, true }, context.paint))
  elseif #silent == 0 then
    context.warn("no program of yours runs under loam\n")
  end
  for _, words in ipairs(silent) do context.warn("loam: " .. words .. "\n") end
  return 0
end

return ps
