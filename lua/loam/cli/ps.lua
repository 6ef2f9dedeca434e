-- ps - the programs of this user that run under loam.

local hosts = require("loam.cli.hosts")
local json = require("loam.json")
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

function ps.run(world, given)
  local found = json.array {}
  for _, pid in ipairs(hosts.all(world)) do
    -- One that ends meanwhile is none any more.
    found[#found + 1] = hosts.ask(world, pid, "status")
  end
  if given.json then
    world.write(json.encode(found) .. "\n")
    return 0
  end
  if #found == 0 then
    world.warn("no program of yours runs under loam\n")
    return 0
  end
  local rows = { { "PID", "PROGRAM", "GENERATION", "POLICY", "FILE", "LAST RELOAD" } }
  for _, status in ipairs(found) do rows[#rows + 1] = row(status) end
  world.write(terminal.table(rows, { true, false, true }, world.paint))
  return 0
end

return ps
