-- diff.lua - compares two policies: every request that they decide differently.

local arguments = require("loam.command.arguments")
local confirm = require("loam.command.diff.confirm")
local impact = require("loam.command.diff.impact")
local policy_query = require("loam.command.policy_query")
local policy_stream = require("loam.command.policy_stream")
local programs = require("loam.command.diff.programs")
local regions = require("loam.command.diff.regions")
local report = require("loam.command.diff.report")

local diff = {
  summary = "compares two policies: which requests get other memory",
  failed = 2, -- as 1 means that the policies differ
  usage = "[OLD] NEW [--pid PID]... [--allow KIND]...\n"
    .. "                 [--json | --markdown]",
  takes = { name = "OLD or NEW", least = 1, most = 2 },
  about = [[
OLD and NEW are policies or images: files, the pipe of a shell such as <(git
show HEAD:prod.lua), or `-`, which is standard input. The comparison is exact
for all tags, files, functions, modules and lines, all sizes and all other
inputs of a policy. Each region of requests that differ is shown with its
sizes, its conditions and a witness: the request with the shortest tag and then
the smallest size. Both policies have explained each witness as shown.

With --pid, the blocks of running programs are counted in each region: all that
they have allocated so far, and those that live. Without OLD, NEW is compared
with the policy that the programs obey. Programs count blocks by tag and size
class. A class that lies only partly in a region gives "A to B blocks": at
least A and at most B. Aligned memory counts with its size rounded up to the
alignment. Requests that were denied were never counted.

Kinds of differences, in the order in which they are shown:
  denied    NEW denies the request, OLD does not
  fallback  the first strategy is alike, the others are not
  limits    the strategy has another limit
  options   the strategy has other options
  moved     another strategy serves
  granted   OLD denies the request, NEW does not
  renamed   a strategy has another name; its requests are no region
  apply     the policies differ in `apply`
  undecided it is not known whether there is such a request

Exit status 0: alike, or all differences are of kinds that --allow names. 1:
they differ. 2: a policy or a program cannot be read.]],
  options = {
    { "pid", "PID", "counts the blocks of this program, or of `all`; may be repeated",
      many = true },
    { "allow", "KIND", "these differences are no failure (may be repeated, or a,b)",
      many = true },
    { "json", nil, "the answer as a JSON object" },
    { "markdown", nil, "the answer as Markdown, for reviews" },
  },
  example = [[
  $ loam diff prod.lua next.lua
  prod.lua -> next.lua: 1 region differs
  moved  tensor: 4 MiB to < 8 MiB
         tensors, else scratch -> scratch
         where req.tag:under("tensor")
         witness --tag tensor --size 4194304
  $ loam diff next.lua --pid 4242
  prod.lua -> next.lua: 1 region differs
  of 41,200,000 blocks (9.1 TiB) that python3 (4242) has allocated so far,
    1,300,000 (6 TiB) would be decided otherwise
  ...
]],
}

local KINDS = {
  denied = true, fallback = true, limits = true, options = true, moved = true, granted = true,
  renamed = true, apply = true, undecided = true,
}

-- Returns the set of kinds that --allow names.
local function allowed_kinds(given)
  local allowed = {}
  for _, words in ipairs(given.allow or {}) do
    for kind in (words .. ","):gmatch("([^,]*),") do
      if not KINDS[kind] then
        arguments.misused(("--allow: '%s' is no kind of difference; `loam diff --help` lists them")
          :format(arguments.plain(kind)))
      end
      allowed[kind] = true
    end
  end
  return allowed
end

-- Returns the answers of both policies to the query `nodes`; or nil and the errors of those that
-- cannot be read.
local function read_both(context, policies)
  local texts, errors = {}, {}
  for i = 1, 2 do
    local text = policy_query.ask(context, "nodes", policies[i], {})
    if text:sub(1, 1) == "{" then
      for _, e in ipairs(policy_query.read(context, text).errors) do errors[#errors + 1] = e end
    end
    texts[i] = text
    if policies[1] == policies[2] then
      texts[2] = text
      break
    end
  end
  if #errors > 0 then return nil, errors end
  return texts
end

-- Has both policies explain all witnesses. Returns a message if one does not confirm; or nil and
-- the errors of a policy that cannot explain them, because its budget is too small.
local function doubt(context, policies, made)
  if #made.regions == 0 then return nil end
  local requests = confirm.requests(made)
  for i, side in ipairs { "old", "new" } do
    local answer = policy_query.ask(context, "confirm", policies[i], { request = requests })
    local refusal = answer:match("^{.*") or answer:match("\n({[^\n]*)$")
    if refusal then return nil, policy_query.read(context, refusal).errors end
    local region, reason = confirm.check(made, side, answer)
    if region then return report.doubt(made, region, policy_stream.name(policies[i]), reason) end
  end
  return nil
end

-- Lists the programs that are counted, and the two policies: paths, or { name, text }.
local function read_arguments(context, given)
  if given.json and given.markdown then
    arguments.misused("--json and --markdown do not go together")
  end
  if not given[2] and not given.pid then
    arguments.misused("NEW is missing; OLD may be left out with --pid")
  end
  if given[1] == "-" and given[2] == "-" then
    arguments.misused("standard input cannot be both OLD and NEW")
  end
  for i = 1, 2 do
    local text = given[i] or ""
    if text:match("^%d+$") and not context.posix.exists(text) then
      arguments.misused(("'%s' is no file; a running program is named with --pid %s"):format(text,
        text))
    end
  end
  local list = given.pid and programs.list(context, given)
  local first = policy_stream.open(context, given[1])
  if not given[2] then return list, { programs.obeyed(context, list), first } end
  return list, { first, policy_stream.open(context, given[2]) }
end

-- Counts the blocks of the programs. Returns nil without programs.
local function count(context, given, list, made)
  if not list then return nil end
  local is_named = given.pid[1] ~= "all"
  local answers, unread = programs.figures(context, list, is_named)
  local counted = impact.of(made, answers)
  counted.programs, counted.unread = {}, unread
  for _, program in ipairs(list) do
    if program.answer then table.insert(counted.programs, program) end
  end
  return counted
end

local FIRST_MS, EVERY_MS = 2000, 250

-- Compares two policies. If that takes more than two seconds, a line on the terminal shows how long
-- the comparison has taken so far.
local function compare(context, texts)
  local clock, is_terminal = context.posix.clock, context.posix.is_terminal(2)
  local began, written = clock(), nil
  local function tick()
    local now = clock()
    if now - began < FIRST_MS or written and now - written < EVERY_MS then return end
    written = now
    context.warn(("\rcomparing the policies, %d s so far\27[K"):format((now - began) / 1000))
  end
  local ok, made = pcall(regions.compare, texts[1], texts[2], is_terminal and tick or nil)
  if written then context.warn("\r\27[K") end
  return ok and made or error(made, 0)
end

function diff.run(context, given)
  local allowed = allowed_kinds(given)
  local list, policies = read_arguments(context, given)
  local shown = { policy_stream.name(policies[1]), policy_stream.name(policies[2]),
                  json = given.json, markdown = given.markdown }
  local texts, errors = read_both(context, policies)
  if not texts then
    report.refused(context, shown, errors)
    return diff.failed
  end
  local made = compare(context, texts)
  local message
  message, errors = doubt(context, policies, made)
  if errors then
    report.refused(context, shown, errors)
    return diff.failed
  end
  if message then
    context.warn("loam diff: " .. message .. "\n")
    return diff.failed
  end
  report.show(context, shown, made, count(context, given, list, made))
  for kind in pairs(report.kinds(made)) do
    if not allowed[kind] then return 1 end
  end
  return 0
end

return diff
