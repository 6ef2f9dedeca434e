-- compile.lua - compiles a policy into an image file.

local arguments = require("loam.command.arguments")
local manifest = require("loam.command.manifest")
local policy_query = require("loam.command.policy_query")
local terminal = require("loam.command.terminal")
local units = require("loam.command.units")

local compile = {
  summary = "compiles a policy into an image, which needs no Lua",
  usage = "POLICY -o FILE",
  takes = { name = "POLICY", least = 1, most = 1 },
  about = [[
Compiles the policy and runs its tests, as a reload does, and writes the result
to FILE. An image can be used wherever a policy can: by loam run, LOAM_POLICY,
loam reload and loam check. Loading it needs no Lua, and takes a fraction of
the time. The image holds the policy's text too: on another machine, or with
another version of loam, that is compiled again. FILE is replaced at once; an
image that is being read stays whole. Exit status 0: the image is written. 1:
the policy is refused, or FILE cannot be written.]],
  options = {
    { "output", "FILE", "where to write the image; also -o FILE; - is standard output",
      kind = "path", short = "o", required = true },
  },
  example = [[
  $ loam compile prod.lua -o prod.image
  prod.image: 14 KiB, 3 plans
]],
}

-- Shows why the policy was refused. A longer question gets the errors in the form of loam check.
local function refused(context, path, words)
  local answer = policy_query.read(context, policy_query.ask(context, "check", path, {}))
  if not policy_query.is_refused(context, answer) then context.fail(words) end
  return 1
end

function compile.run(context, given)
  local path, file = given[1], given.output ~= "-" and given.output or nil
  if not file and context.posix.is_terminal(1) then
    arguments.misused("-o -: standard output is a terminal, and an image is not text")
  end
  arguments.refuse_input(path)
  manifest.refuse(context, path)
  local bytes, plans, status = context.api.compile(path, file)
  if bytes and not file then return 0 end
  if bytes then
    context.write(("%s: %s, %s\n"):format(terminal.plain(file), units.bytes(bytes),
      units.plural(plans, "plan")))
    return 0
  end
  if status == context.api.EPOLICY then return refused(context, path, plans) end
  return context.fail(plans)
end

return compile
