-- demote - has a running program put a tag's live memory where it costs less.

local moving = require("loam.cli.moving")
local options = require("loam.cli.options")

local demote = {
  summary = "moves a tag's cold memory to a slower node, or out",
  usage = "PID --tag T [--older SECONDS] [--to WHERE] [--rate BYTES] [--json]",
  takes = { name = "PID", least = 1, most = 1 },
  about = [[
--to node (the default) moves it to the nearest node without CPUs, or to node N, where it
is of a strategy named NAME@nodeN; `loam rebalance` brings it back. --to cold lets it go
first when memory is short, --to pageout puts it into swap at once. --older is time since
a block got its memory, not since it was used: that nobody knows. Blocks of
64 KiB and less have no age, and are then refused.]],
  options = {
    { "tag", "T", "memory of this tag and of those under it", kind = "tag", required = true },
    { "older", "SECONDS", "only blocks that have lived so long (to within 10 s)",
      kind = "number" },
    { "to", "WHERE", "node, node=N, cold or pageout" },
    { "rate", "BYTES", "a second at most (default 1GiB)", kind = "size" },
    { "json", nil, "the report as a JSON object" },
  },
  example = [[
  $ loam demote 4242 --tag cache.pages --older 600
  TAG          moved    2 GiB  512
  cache.pages  refused  1 GiB  230  it is younger
  2 GiB moved, 0 B were right, 1 GiB refused
]],
}

local PLACES = { node = true, cold = true, pageout = true }

local function place(to)
  local node = to:match("^node=(%d+)$")
  if node then return { "to=node", "node=" .. node } end
  if PLACES[to] then return { "to=" .. to } end
  return options.misused(("--to: '%s' is not node, node=N, cold or pageout"):format(to))
end

function demote.run(world, given)
  local words = place(given.to or "node")
  if given.older then words[#words + 1] = "older=" .. given.older end
  if given.rate then words[#words + 1] = ("rate=%.0f"):format(math.max(given.rate, 1)) end
  return moving.run(world, given, moving.request("demote", words, given.tag))
end

return demote
