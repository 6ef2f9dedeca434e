-- reload.lua - makes a running program load its policy again, or another policy, and waits.

local hosts = require("loam.command.hosts")
local arguments = require("loam.command.arguments")

local reload = {
  summary = "makes a running program load its policy again, or another one",
  usage = "PID [FILE] [--json]",
  takes = { name = "PID", least = 1, most = 2 },
  about = [[
Waits until the policy is live or refused. Exit status 0: it is live. 1: it was refused; the
full error is shown, and the program keeps the policy that it had.]],
  options = { { "json", nil, "the answer as a JSON object" } },
  example = [[
  $ loam reload 4242 /etc/loam/prod.lua
  live: generation 4
]],
}

local PATIENCE_MS = 120000

function reload.run(context, given)
  local pid, request = hosts.pid(given[1]), "reload"
  if given[2] then
    if given[2] == "" or given[2]:find("[\n%z]") then
      arguments.misused("FILE must be a path on one line")
    end
    local path = context.posix.absolute(given[2])
    if not path then
      context.fail("the current folder was removed; write FILE as an absolute path")
    end
    request = request .. " " .. path
  end
  local answer, words, text = hosts.ask(context, pid, request, PATIENCE_MS)
  if not answer then context.fail(words) end
  if given.json then
    context.write(text .. "\n")
  elseif answer.ok then
    context.write(("%s: generation %d\n"):format(context.paint("green", "live"), answer.generation))
  else
    context.warn(("%s: generation %d stays live\n%s\n"):format(
      context.paint_error("red", "refused"), answer.generation or 0,
      answer.error or "no reason was given"))
  end
  return answer.ok and 0 or 1
end

return reload
