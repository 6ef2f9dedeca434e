-- check.lua - does everything that a reload would do with a policy, without a host.

local describe = require("loam.command.describe")
local policy_query = require("loam.command.policy_query")
local policy_stream = require("loam.command.policy_stream")
local terminal = require("loam.command.terminal")
local units = require("loam.command.units")

local check = {
  summary = "does what a reload would do with a policy, without a host",
  usage = "POLICY... [--tag T]... [--json]",
  takes = { name = "POLICY", least = 1 },
  about = [[
Compiles each policy for every tag that can come: tags that pick treats alike
are a class, with one plan. Compares the plans with plain Lua, decides the
invariants, runs the tests, and checks the options against this machine. POLICY
is a file, the pipe of a shell such as <(git show HEAD:prod.lua), or `-`, which
is standard input; so it is for explain, plan, test and diff. Who may write the
file is not checked: a program refuses a file that other users can change. Exit
status 0: a reload would take all policies. 1: it would refuse one.]],
  options = {
    { "tag", "T", "show the class of this tag too (may be repeated)", kind = "tag", many = true },
    { "json", nil, "one JSON object for each policy, one a line" },
  },
  example = [[
  $ loam check prod.lua
  prod.lua:9: field: req has no field 'szie'
      9 |   if req.szie >= 4096 then return big end
    hint: did you mean 'size'?
]],
}

local function counted(value)
  return type(value) == "table" and #value or value or 0
end

local function summary(path, answer)
  local leaves = 0
  for _, entry in ipairs(answer.tags) do leaves = leaves + entry.leaves end
  local name = answer.name == "" and "" or (' "%s",'):format(terminal.plain(answer.name))
  return ("%s: ok:%s %s, %s with %s, %s, %s\n"):format(path, name,
    units.plural(counted(answer.strategies), "strategy", "strategies"),
    units.plural(#answer.tags, "class", "classes"), units.plural(leaves, "leaf", "leaves"),
    units.plural(counted(answer.tests), "test"), units.plural(counted(answer.always), "invariant"))
end

local function details(context, answer)
  local rows = { { "STRATEGY", "WHAT" } }
  for _, strategy in ipairs(type(answer.strategies) == "table" and answer.strategies or {}) do
    rows[#rows + 1] = { strategy.name, describe.strategy(strategy) }
  end
  if #rows > 1 then context.write(terminal.table(rows, nil, context.paint)) end
end

local function check_one(context, given, path, only)
  local policy = policy_stream.open(context, path)
  local text = policy_query.ask(context, "check", policy, given)
  local answer = policy_query.read(context, text)
  if given.json then
    context.write(text .. "\n")
    return policy_query.status(answer)
  end
  if policy_query.is_refused(context, answer) then return 1 end
  if #answer.warnings > 0 then
    context.warn(terminal.faults(answer.warnings, context.paint_error, "yellow", "warning"))
  end
  context.write(summary(context.paint("bold", terminal.plain(policy_stream.name(policy))), answer))
  if only then details(context, answer) end
  return 0
end

function check.run(context, given)
  local status = 0
  for _, path in ipairs(given) do
    status = math.max(status, check_one(context, given, path, #given == 1))
  end
  return status
end

return check
