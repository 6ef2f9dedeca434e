-- status.lua - shows the live policy of a running program, and the last attempt to change it.

local arguments = require("loam.command.arguments")
local boards = require("loam.command.boards")
local command_line = require("loam.command.command_line")
local describe = require("loam.command.describe")
local hosts = require("loam.command.hosts")
local rank = require("loam.command.rank")
local terminal = require("loam.command.terminal")
local units = require("loam.command.units")

local status = {
  summary = "shows which policy a program has, and how its last reload went",
  usage = "[PID] [--text [HASH] | --json]",
  takes = { name = "PID", most = 1 },
  about = [[
Without PID, shows the only program of yours that runs under loam; if several
run, lists them. The command reads the board and asks the program nothing, so
the program may be stopped or hung. A program that was killed is shown for ten
minutes after its end.

--text prints the policy that the program obeys, and not the file, which may
have been edited since the program loaded it. With a HASH it prints another
policy that the board still has, such as the one that was published before: its
hash is in the row "before". So a bad edit is found and undone by these
commands:
  $ loam status 4242 --text 5a1e0b3c77d29f41 > before.lua
  $ loam diff before.lua prod.lua
  $ cp before.lua prod.lua]],
  options = {
    { "text", "[HASH]", "print the policy that is obeyed, or the one with this hash",
      pattern = "^" .. ("%x"):rep(16) .. "$", default = "" },
    { "json", nil, "the answer as a JSON object" },
  },
  example = [[
  $ loam status 4242
  program   python3 (4242), loam 1.1.0
  command   python3 app.py
  state     running
  policy    production, generation 3
  file      /etc/loam/prod.lua, watched
  loaded    5 minutes ago, hash 91f0c1d2a3b4c5d6
  attempts  4, 1 refused
  last      ok, 5 minutes ago
  before    hash 5a1e0b3c77d29f41, published 2 hours ago
  compiled  12 plans for 57 sites
  as of     2 seconds ago
]],
}

local function policy_text(answer)
  if answer.generation == 0 then return "the built-in default" end
  local name = answer.name ~= "" and terminal.plain(answer.name) or "without a name"
  return ("%s, generation %d"):format(name, answer.generation)
end

local function rank_text(answer)
  return ("%d"):format(answer.rank) .. (answer.job and ", job " .. answer.job or "")
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
  local hash = answer.refused_hash and ", hash " .. answer.refused_hash or ""
  return context.paint("red", "refused") .. ", " .. ago .. hash .. "\n" .. (last.error or "")
end

-- Returns the words about a policy that is published for the process and not yet obeyed; nil if
-- there is none.
local function published_text(context, answer)
  local latest = answer.latest
  if not latest or latest.number <= answer.published or answer.state == "ended" then return nil end
  return ("hash %s, %s; the program obeys it with its next request for memory"):format(latest.hash,
    units.ago(latest.at, context.now()))
end

-- Returns the words about the policy that was published before the last one; nil if the board does
-- not have one, or if it has an equal text.
local function before_text(context, answer)
  local before = answer.before
  if not before or before.hash == answer.latest.hash then return nil end
  return ("hash %s, published %s"):format(before.hash, units.ago(before.at, context.now()))
end

local function limits_text(answer)
  local lines = {}
  for i, limit in ipairs(answer.limits) do
    local used, most = units.bytes(limit.used_bytes), units.bytes(limit.limit_bytes)
    local peak = limit.peak_bytes and ", peak " .. units.bytes(limit.peak_bytes) or ""
    lines[i] = ("%s: %s of %s%s"):format(terminal.plain(limit.strategy), used, most, peak)
    if limit.shared then
      lines[i] = ("%s; all programs that share '%s' use %s"):format(lines[i],
        terminal.plain(limit.shared), units.bytes(limit.shared_used_bytes))
    end
  end
  local more = answer.limits_left_out or 0
  if more > 0 then lines[#lines + 1] = ("and %d more"):format(more) end
  return table.concat(lines, "\n")
end

-- Returns the words about memory pressure; nil if there was no alarm.
local function pressure_text(pressure)
  if not pressure or pressure.alarms == 0 then return nil end
  return ("%s; %s; the control group waits for it %d%% of the time"):format(
    pressure.short and "short" or "not short now", units.plural(pressure.alarms, "alarm"),
    pressure.stalled)
end

-- The rows that only a board gives: a host that answered over its socket does not tell them.
local function add_board_rows(context, answer, add)
  if answer.limits and #answer.limits > 0 then add("limits", "%s", limits_text(answer)) end
  local pressure = pressure_text(answer.pressure)
  if pressure then add("memory", "%s", pressure) end
  if answer.updated_at then add("as of", "%s", units.ago(answer.updated_at, context.now())) end
end

local function show(context, answer)
  local rows = {}
  local function add(name, format, ...) rows[#rows + 1] = { name, format:format(...) } end
  add("program", "%s, loam %s", describe.program(answer), answer.loam)
  if answer.command then add("command", "%s", terminal.plain(answer.command)) end
  if answer.rank then add("rank", "%s", rank_text(answer)) end
  if answer.state then add("state", "%s", boards.state(answer, context.now())) end
  add("policy", "%s", policy_text(answer))
  add("file", "%s", file_text(answer))
  if answer.generation > 0 then
    add("loaded", "%s, hash %s", units.ago(answer.loaded_at, context.now()), answer.hash)
  end
  add("attempts", "%s, %s refused", units.count(answer.loads), units.count(answer.refused))
  add("last", "%s", last_text(context, answer))
  local published = published_text(context, answer)
  if published then add("published", "%s", published) end
  local before = before_text(context, answer)
  if before then add("before", "%s", before) end
  add("compiled", "%s for %s", units.plural(answer.plans, "plan"),
    units.plural(answer.sites, "site"))
  if answer.tags_refused > 0 then
    add("no memory for", "the plan of %s", units.plural(answer.tags_refused, "site"))
  end
  add_board_rows(context, answer, add)
  context.write(terminal.list(rows, context.paint))
end

-- Returns the status of a host as a table and as text. The command asks the host over its socket if
-- the host could make no board, or has an older loam.
local function find(context, pid)
  local row = boards.find(context, pid)
  if row then
    rank.add(context, row)
    command_line.add(context, row)
    return row.status, row.text
  end
  local answer, words, text = hosts.ask(context, pid, "status")
  if not answer then context.fail(words) end
  return answer, text
end

-- Prints the text of the policy that the program obeys, or of the one with a hash.
local function show_text(context, answer, hash)
  local program = describe.program(answer)
  if hash == "" and answer.generation == 0 then context.fail(program .. " obeys no policy") end
  local wanted = hash ~= "" and hash:lower() or answer.hash
  local text = boards.policy_text(context, answer, wanted)
  if not text and not answer.latest then
    context.fail(("%s loads its policy itself, so no board has its text; %s"):format(program,
      answer.path == "" and "it has no file" or "its file is " .. terminal.plain(answer.path)))
  elseif not text then
    context.fail(("the board of %s has no policy with hash %s; only the last two that were "
      .. "published are there"):format(program, wanted))
  end
  -- A comment may have control characters, and another user may have written it.
  context.write(context.posix.is_terminal(1) and terminal.plain_lines(text) or text)
end

function status.run(context, given)
  if given.text and given.json then
    arguments.misused("--json has no text of a policy, so it does not go with --text")
  end
  local answer, text = find(context, hosts.living(context, given[1], "status"))
  if given.text then
    show_text(context, answer, given.text)
  elseif given.json then
    context.write(text .. "\n")
  else
    show(context, answer)
  end
  return 0
end

return status
