-- schema.lua - prints the JSON Schema of a command's answers.

local arguments = require("loam.command.arguments")

local schema = {
  summary = "prints the JSON Schema of what a command writes with --json",
  usage = "COMMAND",
  takes = { name = "COMMAND", least = 1, most = 1 },
  about = [[
The schema (JSON Schema, draft 2020-12) names each member of an answer, with
its type and its meaning. It describes one line of output. The schemas are
installed in share/loam/schema too.]],
  options = {},
  example = [[
  $ loam schema stats > stats.json
  $ loam stats 4242 --json
]],
}

function schema.run(context, given)
  local name = given[1]
  local found, text = false, nil
  if name:find("^%l+$") then found, text = pcall(require, "loam.command.schema." .. name) end
  if not found then
    arguments.misused(("'%s' is no command that takes --json"):format(arguments.plain(name)))
  end
  context.write(text)
  return 0
end

return schema
