-- reload - has a running program load its policy again, or another, and waits for how it went.

local hosts = require("loam.cli.hosts")
local options = require("loam.cli.options")

local reload = {
  summary = "has a running program load its policy again, or another one",
  usage = "PID [FILE] [--json]",
  takes = { name = "PID", least = 1, most = 2 },
  about = [[
Waits until the policy is live or refused. Exit status 0 if it is live; 1 if it is
refused, with the full error, and the program keeps the policy it had.]],
  options = { { "json", nil, "the answer as a JSON object" } },
  example = [[
  $ loam reload 4242 /etc/loam/prod.lua
  live: generation 4
]],
}

local PATIENCE_MS = 120000

function reload.run(world, given)
  local pid, request = hosts.pid(given[1]), "reload"
  if given[2] then
    if given[2] == "" or given[2]:find("[\n%z]") then options.misused("FILE is not a path") end
    local path = world.posix.absolute(given[2])
    if not path then world.fail("the current folder is gone; give FILE from the root") end
    request = request .. " " .. path
  end
  local answer, words, text = hosts.ask(world, pid, request, PATIENCE_MS)
  if not answer then world.fail(words) end
  if given.json then
    world.write(text .. "\n")
  elseif answer.ok then
    world.write(("%s: generation %d\n"):format(world.paint("green", "live"), answer.generation))
  else
    world.warn(("%s: generation %d stays live\n%s\n"):format(world.paint_error("red", "refused"),
      answer.generation or 0, answer.error or "no reason was given"))
  end
  return answer.ok and 0 or 1
end

return reload
