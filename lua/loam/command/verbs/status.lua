-- status.lua - shows the live policy of a running program, and the last attempt to change it.

local hosts = require("loam.command.hosts")
local terminal = require("loam.command.terminal")
local units = require("loam.command.units")

local status = {
  summary = "shows which policy a running program has, and how its last reload went",
  usage = "[PID] [--json]",
  takes = { name = "PID", most = 1 },
  about = [[
Without PID, shows the only program of yours that runs under loam; if several run, lists
them.]],
  options = { { "json", nil, "the answer as a JSON object" } },
  example = [[
  $ loam status 4242
  program      python3 (4242), loam 0.1.0
  policy       production, generation 3
  file         /etc/loam/prod.lua, watched
  loaded       5 minutes ago, hash 91f0c1d2a3b4c5d6
  attempts     4, 1 refused
  last         ok, 5 minutes ago
  compiled     12 plans for 57 sites
]],
}

local function program_text(answer)
  local program = terminal.plain(answer.program)
  return ("%s (%d), loam %s"):format(program, answer.pid, answer.version)
end

local function policy_text(answer)
  if answer.generation == 0 then return "the built-in default" end
  local name = answer.name ~= "" and terminal.plain(answer.name) or "without a name"
  return ("%s, generation %d"):format(name, answer.generation)
end

local function file_text(answer)
  if (answer.path or "") == "" then return "none" end
  return terminal.plain(answer.path) .. (answer.watching and ", watched" or ", not watched")
end

local function last_text(context, answer)
  local last = answer.last
  if not last or not last.at or last.at == 0 then return "none" end
  local ago = units.ago(last.at, context.now())
  if last.ok then return context.paint("green", "ok") .. ", " .. ago end
  return context.paint("red", "refused") .. ", " .. ago .. "\n" .. (last.error or "")
end

local function show(context, answer)
  local rows = {
    { "program", program_text(answer) },
    { "policy", policy_text(answer) },
    { "file", file_text(answer) },
  }
  local function add(name, format, ...) rows[#rows + 1] = { name, format:format(...) } end
  if answer.generation > 0 then
    add("loaded", "%s, hash %s", units.ago(answer.loaded_at, context.now()), answer.hash)
  end
  add("attempts", "%s, %s refused", units.count(answer.loads), units.count(answer.refused))
  add("last", "%s", last_text(context, answer))
  add("compiled", "%s for %s", units.plural(answer.plans, "plan"),
    units.plural(answer.sites, "site"))
  if answer.tags_refused > 0 then
    add("no memory for", "the plan of %s", units.plural(answer.tags_refused, "site"))
  end
  context.write(terminal.list(rows, context.paint))
end

function status.run(context, given)
  return hosts.answer(context, given, "status", show)
end

return status
