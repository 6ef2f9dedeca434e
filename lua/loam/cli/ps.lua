-- ps - the programs of this user that run under loam.

local hosts = require("loam.cli.hosts")
local terminal = require("loam.cli.terminal")

local ps = {
  summary = "lists the programs that run under loam",
  usage = "[--json]",
  about = [[
Each program of yours that has a control socket, with the policy that is live in it. One
that is stopped, or busy with a load, is named where it does not answer within 2 s.]],
  options = { { "json", nil, "an array of their `loam status --json`" } },
  example = [[
  $ loam ps
   PID  PROGRAM  GENERATION  POLICY      FILE                 LAST RELOAD
  4242  python3           3  production  /etc/loam/prod.lua   ok
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

-- Answers of the hosts: read, and as they came, whose numbers may be more than doubles hold; and
-- why others gave none.
local function ask_all(world)
  local found, texts, silent = {}, {}, {}
  for _, pid in ipairs(hosts.all(world)) do
    local answer, words, text = hosts.ask(world, pid, "status")
    found[#found + 1] = answer
    texts[#texts + 1] = text
    silent[#silent + 1] = words
  end
  return found, texts, silent
end

function ps.run(world, given)
  local found, texts, silent = ask_all(world)
  if given.json then
    world.write("[" .. table.concat(texts, ",") .. "]\n")
  elseif #found > 0 then
    local rows = { { "PID", "PROGRAM", "GENERATION", "POLICY", "FILE", "LAST RELOAD" } }
    for _, status in ipairs(found) do rows[#rows + 1] = row(status) end
    world.write(terminal.table(rows, { true, false, true }, world.paint))
  elseif #silent == 0 then
    world.warn("no program of yours runs under loam\n")
  end
  for _, words in ipairs(silent) do world.warn("loam: " .. words .. "\n") end
  return 0
end

return ps
