-- wait.lua - waits until running programs obey a policy, or have refused it. It reads boards only.

local arguments = require("loam.command.arguments")
local boards = require("loam.command.boards")
local hosts = require("loam.command.hosts")
local manifest = require("loam.command.manifest")
local obeying = require("loam.command.obeying")
local units = require("loam.command.units")

local wait = {
  summary = "waits until running programs obey a policy",
  usage = "--policy FILE | --hash H [--all|--followers|--pid PID...]\n"
    .. "                 [--timeout T] [--published] [--json]",
  takes = { name = "PID" },
  about = [[
Exit status 0: all programs obey the policy. 1: some have refused it; lines
name them, with the first line of the error. 3: the time is over, and some have
not seen it; lines say why. 2: not called as it should be; also if FILE cannot
be read, or no process has a PID.

The programs are all that `loam ps` lists, also those that start in the
meantime; with --followers, those of them whose policy file is FILE, also in
containers; or those with the given PIDs. A program that ends is left out. If
there is no program to wait for, the status is 0, and a line says so; if all
that were named have ended, it is 3. Programs of another version of loam, which
this command cannot read, count as programs that have not seen the policy.
After the first refusal the command waits one more second for the other
programs. Nothing is asked of the programs.

FILE is read once, at the start: a later edit is another policy. FILE may also
be an image, or a manifest of Kubernetes: then it is the policy in its
ConfigMap. A process that `loam run` has started obeys with its next request
for memory; one that sleeps obeys later. With --published, a policy that is
published for such a process counts as obeyed.]],
  options = {
    { "policy", "FILE", "the policy is the text that FILE has now", kind = "policy" },
    { "hash", "H", "the policy has this hash, as in `loam status`" },
    { "all", nil, "all programs that `loam ps` lists; this is the default" },
    { "followers", nil, "only the programs whose policy file is FILE" },
    { "pid", "PID", "this process; may be repeated, and more PIDs may follow", many = true },
    { "timeout", "T", "such as 500ms, 10s or 2m; 60s by default; 0: looks once", kind = "time" },
    { "published", nil, "a published policy counts as obeyed" },
    { "json", nil, "the answer as a JSON object" },
  },
  example = [[
  $ loam wait --policy prod.lua --timeout 30s
  100 programs obey 91f0c1d2a3b4c5d6
]],
}

local TIMEOUT_MS = 60000
local REFUSED_MS = 1000 -- after the first refusal, so that the other processes can tell theirs
local LOOK_MS, LOOK_MOST_MS = 20, 100 -- between two looks
local IDLE_SHARE = 4 -- times as long as a look takes, the command rests

-- ---- arguments

-- Returns the hash of a policy's text. In a manifest, it is the text in the ConfigMap, which hosts
-- read where the ConfigMap is mounted.
local function hash_of(context, path)
  if not manifest.is_one(path) then return context.api.hash(path) end
  local text, exact, line = manifest.read(context, path)
  if text then return context.api.hash_text(exact) end
  return nil, ("%s:%s %s"):format(path, line and line .. ":" or "", exact)
end

local function read_hash(context, given)
  if given.policy and given.hash then
    arguments.misused("--policy and --hash do not go together")
  elseif not given.policy and not given.hash then
    arguments.misused("one of --policy FILE and --hash H is needed")
  end
  if given.policy then
    local hash, words = hash_of(context, given.policy)
    return hash or arguments.misused(words)
  end
  local hash = given.hash:lower()
  if #hash ~= 16 or not hash:find("^%x+$") then
    arguments.misused(("--hash: '%s' is not 16 hexadecimal digits; `loam status` shows the hash")
      :format(arguments.plain(given.hash)))
  end
  return hash
end

-- Returns the process ids that are given, each once; nil: all programs are waited for.
local function read_pids(given)
  for _, text in ipairs(given.pid or {}) do table.insert(given, text) end
  local pids = hosts.pids(given)
  if given.all and #pids > 0 then arguments.misused("--all and process ids do not go together") end
  return #pids > 0 and pids or nil
end

-- Returns the absolute path of the file whose followers are waited for; nil: all programs count.
local function read_file(context, given, pids)
  if not given.followers then return nil end
  if not given.policy then arguments.misused("--followers needs --policy FILE") end
  if given.all or pids then
    arguments.misused("--followers does not go together with --all or process ids")
  elseif manifest.is_one(given.policy) then
    arguments.misused("--followers: no program follows a manifest; name the policy file")
  end
  return context.posix.absolute(given.policy) or given.policy
end

-- ---- waiting

local function count_unsettled(found)
  return #found.unseen + #found.published
end

-- Returns whether each process obeys or has refused the policy. Nobody knows whether the programs
-- on a board of another version do.
local function is_settled(found)
  return count_unsettled(found) == 0 and #found.others == 0
end

-- Looks once. With `is_enough`, processes for which the policy is published count as if they
-- obeyed.
local function look(context, wanted)
  local found = obeying.look(context, wanted.hash, wanted.pids, wanted.file)
  found.only_published = #found.published
  if wanted.is_enough then
    for _, status in ipairs(found.published) do table.insert(found.obeyed, status) end
    found.published = {}
  else
    found.only_published = 0
  end
  return found
end

local function obeying_words(n) return units.plural(n, "program obeys", "programs obey") end

-- Makes a function that shows the progress on one line of the terminal, which each call overwrites;
-- without an argument, it removes the line.
local function progress(context)
  local shown = ""
  if not context.posix.is_terminal(2) then return function() end end
  return function(found)
    local text = ""
    if found then
      local all = #found.obeyed + #found.refused + count_unsettled(found)
      local others = units.plural(#found.others, "board") .. " cannot be read, "
      text = ("%d of %s, %safter %d s"):format(#found.obeyed, obeying_words(all),
        #found.others > 0 and others or "", math.floor(found.waited_ms / 1000))
    end
    if text == shown then return end
    context.warn("\r" .. text .. (" "):rep(#shown - #text) .. (found and "" or "\r"))
    shown = text
  end
end

-- Looks until every process obeys or has refused the policy, or there is a reason to wait no
-- longer. A look that takes long is followed by a longer rest.
local function wait_for(context, wanted, show)
  local clock = context.posix.clock
  local began, refused_at = clock(), nil
  while true do
    local before = clock()
    local found = look(context, wanted)
    local now = clock()
    found.waited_ms = now - began
    found.timed_out = false
    if is_settled(found) then return found end
    if #found.refused > 0 then refused_at = refused_at or now end
    if refused_at and now - refused_at >= REFUSED_MS then return found end
    local left = wanted.timeout_ms - found.waited_ms
    found.timed_out = left <= 0
    if found.timed_out then return found end
    show(found)
    local rest = math.min(math.max(IDLE_SHARE * (now - before), LOOK_MS), LOOK_MOST_MS, left)
    found.interrupted = context.posix.wait(rest)
    if found.interrupted then return found end
  end
end

-- ---- the answer

local function status_of(context, found)
  if found.interrupted then return context.posix.signal_status() end
  if #found.refused > 0 then return 1 end
  local is_none_left = #found.ended > 0 and #found.obeyed == 0
  return (not is_settled(found) or is_none_left) and 3 or 0
end

-- Says in one line why not all programs obey.
local function summary(found, wanted)
  local unsettled, all = count_unsettled(found), #found.obeyed + #found.refused
  if #found.refused > 0 then
    return ("%d of %s refused %s"):format(#found.refused, units.plural(all + unsettled, "program"),
      wanted.hash)
  elseif is_settled(found) then
    return "all processes that were named have ended"
  end
  local others, rest = #found.others, ""
  if others > 0 then
    rest = ("; the programs on %s of other versions cannot be read"):format(
      units.plural(others, "board"))
  end
  return ("after %.1f s, %d of %s %s%s"):format(found.waited_ms / 1000, #found.obeyed,
    obeying_words(all + unsettled), wanted.hash, rest)
end

local function show_success(context, found, wanted)
  local n = #found.obeyed
  if n == 0 then
    context.warn(wanted.file and ("no program of yours follows %s\n"):format(wanted.policy)
      or boards.none_words({}, context) .. "\n")
    return
  end
  local rest = found.only_published
  local words = rest == 0 and "" or
    (("; %d of them with the next request for memory"):format(rest))
  context.write(("%s %s%s\n"):format(obeying_words(n), wanted.hash, words))
end

local function show_answer(context, found, wanted, status)
  for _, list in ipairs { "ended", "refused", "published", "unseen" } do
    for _, line in ipairs(obeying.lines(list, found[list])) do context.warn(line .. "\n") end
  end
  boards.warn_of_others(context, found.others, "wait", "and cannot be waited for")
  if status == 0 then show_success(context, found, wanted)
  else context.warn(("loam wait: %s\n"):format(summary(found, wanted))) end
end

local function encode(found, wanted, status)
  local json = require("loam.report.json")
  local answer = { ok = status == 0, hash = wanted.hash, policy = wanted.policy,
                   waited_ms = found.waited_ms, timed_out = found.timed_out,
                   error = status ~= 0 and summary(found, wanted) or nil,
                   other_boards = boards.other_paths(found.others) }
  for _, list in ipairs { "obeyed", "published", "refused", "unseen", "ended" } do
    answer[list] = json.array({})
    for i, process in ipairs(found[list]) do
      answer[list][i] = { pid = process.pid, program = process.program, state = process.state,
                          error = list == "refused" and process.last.error or nil }
    end
  end
  return json.encode(answer, { "ok" })
end

-- A process id that no process has is a mistake at the start; later it is a process that ended. The
-- id of a thread would be waited for in vain.
local function check_pids(context, wanted)
  local found = obeying.look(context, wanted.hash, wanted.pids)
  for _, status in ipairs(found.unseen) do
    local thread = not status.state and hosts.thread_words(context, status.pid)
    if thread then arguments.misused(thread) end
  end
  if not found.ended[1] then return end
  arguments.misused(("no process %d runs; `loam ps` lists programs"):format(found.ended[1].pid))
end

function wait.run(context, given)
  local pids = read_pids(given)
  local file = read_file(context, given, pids)
  local wanted = { hash = read_hash(context, given), pids = pids, file = file,
                   policy = given.policy, timeout_ms = given.timeout or TIMEOUT_MS,
                   is_enough = given.published }
  if wanted.pids then check_pids(context, wanted) end
  local show = progress(context)
  local found = wait_for(context, wanted, show)
  show()
  local status = status_of(context, found)
  if given.json then context.write(encode(found, wanted, status) .. "\n")
  else show_answer(context, found, wanted, status) end
  return status
end

return wait
