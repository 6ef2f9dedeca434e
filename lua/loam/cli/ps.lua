-- ps - the programs of this user that run under loam.

local hosts = require("loam.cli.hosts")
local terminal = require("loam.cli.terminal")

local ps = {
  summary = "lists the programs that run under loam",
  usage = "[--json]",
  about = [[
Each program of yours that answers on its control socket, with the policy that is live
in it.]],
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

-- Answers of the hosts: read, and as they came, whose numbers may be more than doubles hold.
local function ask_all(world)
  local found, texts = {}, {}
  for _, pid in ipairs(hosts.all(world)) do
    -- One that ends meanwhile is none any more.
    local answer, _, text = hosts.ask(world, pid, "status")
    found[#found + 1] = answer
    texts[#texts + 1] = text
  end
  return found, texts
end

function ps.run(world, given)
  local found, texts = ask_all(world)
  if given.json then
    world.write("[" .. table.concat(texts, ",") .. "]\n")
  elseif #found == 0 then
    world.warn("no program of yours runs under loam\n")
  else
    local rows = { { "PID", "PROGRAM", "GENERATION", "POLICY", "FILE", "LAST RELOAD" } }
    for _, status in ipairs(found) do rows[#rows + 1] = row(status) end
    world.write(terminal.table(rows, { true, false, true }, world.paint))
  end
  return 0
end

return ps
