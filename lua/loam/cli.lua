-- cli - the `loam` command: finds the verb, reads its options, runs it, ends with its status.
--
-- 0: done. 1: refused or failed. 2: not called as it should be. `loam run` ends with 2 for a
-- policy that is refused, else with the command's own status.

local diag = require("loam.diag")
local options = require("loam.cli.options")

local cli = {}

-- In the order of help; each is lua/loam/cli/NAME.lua.
local VERBS = {
  "check", "explain", "plan", "test", "run", "ps", "status", "stats", "reload",
  "rebalance", "demote", "doctor",
}

local function is_verb(name)
  for _, verb in ipairs(VERBS) do
    if verb == name then return true end
  end
  return false
end

local function load_verb(name)
  if is_verb(name) then return require("loam.cli." .. name) end
  local nearest = diag.suggest(name, VERBS)
  return options.misused(("unknown command '%s'%s"):format(options.plain(name),
    nearest and "; did you mean '" .. nearest .. "'?" or ""))
end

-- ---- help

local function general_help(world)
  world.write("loam - memory whose kind a policy decides\n\nUsage: loam COMMAND ...\n\n")
  for _, name in ipairs(VERBS) do
    world.write(("  %-9s %s\n"):format(name, load_verb(name).summary))
  end
  world.write("\n`loam help COMMAND` explains one, with an example; `loam --version` names it.\n")
  return 0
end

local function verb_help(world, name)
  local verb = load_verb(name)
  world.write(("loam %s - %s\n\n"):format(name, verb.summary))
  world.write(("Usage: loam %s %s\n\n"):format(name, verb.usage))
  world.write(("%s\n\n%s\nExample:\n%s"):format(verb.about, options.help(verb), verb.example))
  return 0
end

-- ---- the way in

local GENERAL = {}

GENERAL["--help"] = general_help
GENERAL["-h"] = general_help

GENERAL["--version"] = function(world)
  world.write("loam " .. world.api.version() .. "\n")
  return 0
end

function GENERAL.help(world, args)
  if not args[2] then return general_help(world) end
  return verb_help(world, args[2])
end

local function dispatch(world, args)
  local name = args[1]
  if not name then options.misused("a command is missing") end
  if GENERAL[name] then return GENERAL[name](world, args) end
  if name:sub(1, 1) == "-" then
    options.misused("unknown option '" .. options.plain(name) .. "'")
  end
  local verb = load_verb(name)
  local given = options.read(verb, { unpack(args, 2) })
  if given.help then return verb_help(world, name) end
  return verb.run(world, given)
end

local function report_misuse(world, args, words)
  local name = is_verb(args[1]) and args[1]
  world.warn(("loam%s: %s\nTry `loam %s--help`.\n"):format(name and " " .. name or "", words,
    name and name .. " " or ""))
  return 2
end

-- Errors with words are meant for people; others are faults of the command itself and get a trace.
local function with_trace(value)
  if type(value) == "table" then return value end
  return { fault = debug.traceback(tostring(value), 2) }
end

---@param args string[] args[0] is the program
---@param world table|nil what is outside: see world.lua; specs bring their own
---@return integer exit status
function cli.main(args, world)
  world = world or require("loam.cli.world").new()
  local ok, result = xpcall(function()
    local status = dispatch(world, args)
    world.finish()
    return status
  end, with_trace)
  if ok then return result end
  if result.usage then return report_misuse(world, args, result.words) end
  if result.silent then return result.status or 1 end
  world.warn("loam: " .. (result.words or "an error in loam itself: " .. result.fault) .. "\n")
  return 1
end

return cli
