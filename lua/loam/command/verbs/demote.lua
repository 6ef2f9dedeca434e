-- demote.lua - the command `loam demote`: a running program moves the live memory of a tag to a
-- slower node or to swap, where it costs less.

local move_job = require("loam.command.move_job")
local arguments = require("loam.command.arguments")

local OLDEST_MS = 2 ^ 31 * 1000 -- the oldest age that --older names

local demote = {
  summary = "moves the live memory of a tag to a slower node, or to swap",
  usage = "PID --tag T [--older AGE] [--to WHERE] [--rate BYTES]\n"
    .. "                   [--json]",
  takes = { name = "PID", least = 1, most = 1 },
  about = [[
--to says where the memory goes:
  node     to the nearest NUMA node without CPUs (the default)
  node=N   to NUMA node N, or to the node that a string of numactl names, as +0
  cold     nowhere yet; the kernel takes it first when memory is short
  pageout  to swap, immediately
Memory that moved to a node has a strategy with the name NAME@nodeN, where NAME
is its old strategy. `loam rebalance` moves it back.

--older AGE moves only blocks that got their memory at least AGE ago, such as
600s or 2h. The time since a block was last used is not known. Blocks of 64 KiB
and less have no age, so with --older they are refused and stay where they are.]],
  options = {
    { "tag", "T", "memory of this tag and of the tags under it", kind = "some_tag",
      required = true },
    { "older", "AGE", "blocks that got their memory so long ago, to within 10 s",
      kind = "time", most = OLDEST_MS },
    { "to", "WHERE", "node, node=N, cold or pageout" },
    { "rate", "BYTES", "the most to move in a second (default 1GiB)", kind = "size",
      least = 1 },
    { "json", nil, "the report as a JSON object" },
  },
  example = [[
  $ loam demote 4242 --tag cache.pages --older 10m
  TAG          RESULT   BYTES  BLOCKS  WHY
  cache.pages  moved    2 GiB     512
  cache.pages  refused  1 GiB     230  it is younger
  2 GiB moved, 0 B in place already, 1 GiB refused
]],
}

local PLACES = { node = true, cold = true, pageout = true }

-- A plain number goes to the program, which knows its nodes, so it needs no libnuma.
local function number_of_node(context, to, text)
  if text:find("^%d+$") then return text end
  local node, why = context.api.one_node(text)
  if node then return ("%d"):format(node) end
  return arguments.misused(("--to: '%s' is not possible: %s"):format(to, why))
end

local function place(context, to)
  local node = to:match("^node=(.+)$")
  if node then return { "to=node", "node=" .. number_of_node(context, to, node) } end
  if PLACES[to] then return { "to=" .. to } end
  return arguments.misused(("--to: '%s' is not possible; write node, node=N, cold or pageout")
    :format(to))
end

function demote.run(context, given)
  local words = place(context, given.to or "node")
  if given.older then words[#words + 1] = ("older=%.0f"):format(math.ceil(given.older / 1000)) end
  if given.rate then words[#words + 1] = ("rate=%.0f"):format(given.rate) end
  return move_job.run(context, given, move_job.request("demote", words, given.tag))
end

return demote
