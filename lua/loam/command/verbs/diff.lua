-- diff.lua - compares two policies: every request that they decide differently.

local arguments = require("loam.command.arguments")
local confirm = require("loam.command.diff.confirm")
local policy_query = require("loam.command.policy_query")
local regions = require("loam.command.diff.regions")
local report = require("loam.command.diff.report")

local diff = {
  summary = "compares two policies: which requests get other memory",
  usage = "OLD NEW [--allow KIND]... [--json | --markdown]",
  takes = { name = "OLD or NEW", least = 2, most = 2 },
  about = [[
OLD and NEW are policies or images. The comparison is exact for all tags, files, functions,
modules and lines, all sizes and all other inputs of a policy. Each region of requests that
differ is shown with its sizes, its conditions and a witness: the request with the shortest
tag and then the smallest size. Both policies have explained each witness as shown.

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

Exit status 0: alike, or all differences are of kinds that --allow names. 1: they differ.
2: one cannot be read.]],
  options = {
    { "allow", "KIND", "differences of this kind are no failure (may be repeated, or a,b)",
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
]],
}

local UNREADABLE = 2

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
local function read_both(context, paths)
  local texts, errors = {}, {}
  for i = 1, 2 do
    local text = policy_query.ask(context, "nodes", paths[i], {})
    if text:sub(1, 1) == "{" then
      for _, e in ipairs(policy_query.read(context, text).errors) do errors[#errors + 1] = e end
    end
    texts[i] = text
    if paths[1] == paths[2] then
      texts[2] = text
      break
    end
  end
  if #errors > 0 then return nil, errors end
  return texts
end

-- Has both policies explain all witnesses. Returns a message if one does not confirm.
local function doubt(context, paths, made)
  if #made.regions == 0 then return nil end
  local requests = confirm.requests(made)
  for i, side in ipairs { "old", "new" } do
    local answer = policy_query.ask(context, "confirm", paths[i], { request = requests })
    local region, reason = confirm.check(made, side, answer)
    if region then return report.doubt(made, region, paths[i], reason) end
  end
  return nil
end

function diff.run(context, given)
  if given.json and given.markdown then
    arguments.misused("--json and --markdown do not go together")
  end
  local allowed = allowed_kinds(given)
  local texts, errors = read_both(context, given)
  if not texts then
    report.refused(context, given, errors)
    return UNREADABLE
  end
  local made = regions.compare(texts[1], texts[2])
  local message = doubt(context, given, made)
  if message then
    context.warn("loam diff: " .. message .. "\n")
    return UNREADABLE
  end
  report.show(context, given, made)
  for kind in pairs(report.kinds(made)) do
    if not allowed[kind] then return 1 end
  end
  return 0
end

return diff
