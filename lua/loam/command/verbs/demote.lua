-- demote.lua - makes a running program move a tag's live memory to where it costs less.

local move_job = require("loam.command.move_job")
local arguments = require("loam.command.arguments")

local demote = {
  summary = "moves a tag's cold memory to a slower node, or to swap",
  usage = "PID --tag T [--older SECONDS] [--to WHERE] [--rate BYTES] [--json]",
  takes = { name = "PID", least = 1, most = 1 },
  about = [[
--to node (the default) moves the memory to the nearest node without CPUs, and --to node=N
moves it to node N. Its strategy is then shown as NAME@nodeN, and `loam rebalance` brings
the memory back. --to cold makes the kernel take it first when memory is short; --to pageout
moves it to swap now.

--older is the time since a block got its memory: the time since a block was last used is
not known. Blocks of 64 KiB and less have no age, so --older refuses them.]],
  options = {
    { "tag", "T", "memory of this tag and of the tags under it", kind = "tag", required = true },
    { "older", "SECONDS", "only blocks that are at least as old, to within 10 s",
      kind = "number" },
    { "to", "WHERE", "node, node=N, cold or pageout" },
    { "rate", "BYTES", "the most to move in a second (default 1GiB)", kind = "size" },
    { "json", nil, "the report as a JSON object" },
  },
  example = [[
  $ loam demote 4242 --tag cache.pages --older 600
  TAG          RESULT   BYTES  BLOCKS  WHY
  cache.pages  moved    2 GiB     512
  cache.pages  refused  1 GiB     230  it is younger
  2 GiB moved, 0 B in place already, 1 GiB refused
]],
}

local PLACES = { node = true, cold = true, pageout = true }

local function place(to)
  local node = to:match("^node=(%d+)$")
  if node then return { "to=node", "node=" .. node } end
  if PLACES[to] then return { "to=" .. to } end
  return arguments.misused(("--to: '%s' is not possible; write node, node=N, cold or pageout")
    :format(to))
end

function demote.run(context, given)
  local words = place(given.to or "node")
  if given.older then words[#words + 1] = "older=" .. given.older end
  if given.rate then words[#words + 1] = ("rate=%.0f"):format(math.max(given.rate, 1)) end
  return move_job.run(context, given, move_job.request("demote", words, given.tag))
end

return demote
