-- command.lua - the `loam` command: finds the verb, reads its options, runs it, returns the exit
-- status.
--
-- Exit status 0: done. 1: refused or failed. 2: wrong arguments. `loam run` returns 2 also when the
-- policy is refused or it failed, and else ends with the status of the command that it runs. `loam
-- diff` returns 1 if the policies differ, and 2 if it failed. `loam owner` returns 1 if an address
-- is in no live block. `loam wait` returns 3 if its time is over, and `loam reload` if another
-- policy was published after its own. Commands that wait return 128 and the number of the signal
-- that stopped them, 130 on Ctrl-C, except `loam metrics`, which returns 0, and `loam top` on a
-- terminal, which returns 0 on Ctrl-C. 70: an error in loam itself.

local diag = require("loam.report.diag")
local arguments = require("loam.command.arguments")
local outside = require("loam.command.context")

local command = {}

-- In the order of `loam --help`. Each verb is a module lua/loam/command/verbs/NAME.lua.
local VERBS = {
  "check", "explain", "plan", "diff", "test", "compile", "run", "ps", "status", "stats", "top",
  "owner", "metrics", "profile", "pages", "reload", "wait", "rebalance", "demote", "sleep",
  "wake", "doctor", "schema",
}

local function is_verb(name)
  for _, verb in ipairs(VERBS) do
    if verb == name then return true end
  end
  return false
end

local function load_verb(name)
  if is_verb(name) then return require("loam.command.verbs." .. name) end
  local nearest = diag.suggest(name, VERBS) or name == "version" and "--version"
  return arguments.misused(("unknown command '%s'%s"):format(arguments.plain(name),
    nearest and "; did you mean '" .. nearest .. "'?" or ""))
end

-- ---- help

local function general_help(context)
  context.write("loam - memory policies for running programs\n\nUsage: loam COMMAND ...\n\n")
  for _, name in ipairs(VERBS) do
    context.write(("  %-9s  %s\n"):format(name, load_verb(name).summary))
  end
  context.write("\n`loam help COMMAND` explains a command, with an example.\n"
    .. "`loam --version` prints the version.\n")
  return 0
end

local function verb_help(context, name)
  local verb = load_verb(name)
  context.write(("loam %s - %s\n\n"):format(name, verb.summary))
  context.write(("Usage: loam %s %s\n\n"):format(name, verb.usage))
  context.write(("%s\n\n%s\n"):format(verb.about, arguments.help(verb)))
  if arguments.has_json(verb) then
    context.write(("Schema of the JSON: share/loam/schema/%s.json, or `loam schema %s`\n\n")
      :format(name, name))
  end
  context.write("Example:\n" .. verb.example)
  return 0
end

-- ---- a verb

-- Makes a message safe to show: it may have the words of an argument or of a file's name.
local function shown(words)
  return (words:gsub("[^\n]+", arguments.plain))
end

-- Returns why a verb failed, in words; nil if it has said so itself.
local function reason_of(failure)
  return failure.fault and "an error in loam itself: " .. failure.fault or failure.words
end

local DEFECT = 70 -- as in cli/command.c

-- Returns the exit status of a command that failed. A verb with a meaning of its own for 1, such as
-- diff and run, names another one: `failed`. An error in loam itself is no answer of a verb.
local function status_of(failure, name)
  if failure.fault then return DEFECT end
  return failure.status or is_verb(name) and load_verb(name).failed or 1
end

-- Runs a verb with --json. If the verb fails, writes a JSON object with the reason to standard
-- output, and passes the error on. Wrong arguments get no object.
local function run_in_json(context, name, verb, given)
  local json_answer = require("loam.command.json_answer")
  local answering = json_answer.context(context, name)
  local ok, result = outside.try(function() return verb.run(answering, given) end)
  if ok then return result end
  local reason = not result.usage and reason_of(result)
  if reason then context.write(json_answer.failure(name, reason, result.answer)) end
  return error(result, 0)
end

-- ---- the entry

local GENERAL = {}

GENERAL["--help"] = general_help
GENERAL["-h"] = general_help

GENERAL["--version"] = function(context)
  context.write("loam " .. context.api.version() .. "\n")
  return 0
end

function GENERAL.help(context, name)
  if not name or GENERAL[name] then return general_help(context) end
  return verb_help(context, name)
end

local function run_general(context, args)
  local extra = args[args[1] == "help" and 3 or 2]
  if extra then arguments.misused(("'%s' is one argument too many"):format(extra)) end
  return GENERAL[args[1]](context, args[2])
end

local function dispatch(context, args)
  local name = args[1]
  if not name then arguments.misused("a command is missing") end
  if GENERAL[name] then return run_general(context, args) end
  if name:sub(1, 1) == "-" then
    local nearest = diag.suggest(name, { "--help", "--version" })
    arguments.misused(("unknown option '%s'%s"):format(arguments.plain(name),
      nearest and "; did you mean '" .. nearest .. "'?" or ""))
  end
  local verb = load_verb(name)
  local given = arguments.read(verb, { unpack(args, 2) })
  if given.help then return verb_help(context, name) end
  if given.json then return run_in_json(context, name, verb, given) end
  return verb.run(context, given)
end

local function report_misuse(context, args, words)
  local name = is_verb(args[1]) and args[1]
  context.warn(("loam%s: %s\nTry `loam %s--help`.\n"):format(name and " " .. name or "",
    arguments.plain(words), name and name .. " " or ""))
  return 2
end

---@param args string[] args[0] is the program
---@param context loam.Context|nil nil: the real one; specs pass a context of their own
---@return integer exit status
function command.main(args, context)
  context = context or outside.new()
  local ok, result = outside.try(function()
    local status = dispatch(context, args)
    context.finish()
    return status
  end)
  if ok then return result end
  if result.usage then return report_misuse(context, args, result.words) end
  if result.silent then return status_of(result, args[1]) end
  context.warn("loam: " .. (result.fault and reason_of(result) or shown(result.words)) .. "\n")
  return status_of(result, args[1])
end

return command
