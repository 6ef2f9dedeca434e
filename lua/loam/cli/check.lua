-- check - everything that a reload would do with a policy, without a host.

local describe = require("loam.cli.describe")
local question = require("loam.cli.question")
local terminal = require("loam.cli.terminal")
local units = require("loam.cli.units")

local check = {
  summary = "does what a reload would do with a policy, without a host",
  usage = "POLICY... [--tag T]... [--json]",
  takes = { name = "POLICY", least = 1 },
  about = [[
Compiles each policy for the empty tag, the tags of its tests, every tag that its pick
compares with and each --tag; compares with plain Lua, decides its invariants, runs its
tests, and checks its options against this machine. Exit status 0 if all would be taken,
1 if one would be refused.]],
  options = {
    { "tag", "T", "compile for this tag too (may be repeated)", kind = "tag", many = true },
    { "json", nil, "one JSON object a policy, one a line" },
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
    units.plural(#answer.tags, "tag"), units.plural(leaves, "leaf", "leaves"),
    units.plural(counted(answer.tests), "test"), units.plural(counted(answer.always), "invariant"))
end

local function details(world, answer)
  local rows = { { "STRATEGY", "WHAT" } }
  for _, strategy in ipairs(type(answer.strategies) == "table" and answer.strategies or {}) do
    rows[#rows + 1] = { strategy.name, describe.strategy(strategy) }
  end
  if #rows > 1 then world.write(terminal.table(rows, nil, world.paint)) end
end

local function check_one(world, given, path, only)
  local text = question.ask(world, "check", path, given)
  local answer = question.read(world, text)
  if given.json then
    world.write(text .. "\n")
    return question.status(answer)
  end
  if question.is_refused(world, answer) then return 1 end
  if #answer.warnings > 0 then
    world.warn(terminal.faults(answer.warnings, world.paint_error, "yellow"))
  end
  world.write(summary(world.paint("bold", terminal.plain(path)), answer))
  if only then details(world, answer) end
  return 0
end

function check.run(world, given)
  local status = 0
  for _, path in ipairs(given) do
    status = math.max(status, check_one(world, given, path, #given == 1))
  end
  return status
end

return check
