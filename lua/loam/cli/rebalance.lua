-- rebalance - has a running program bring its live memory to where its policy wants it now.

local moving = require("loam.cli.moving")

local rebalance = {
  summary = "moves a running program's live memory to where its policy wants it",
  usage = "PID [--tag T] [--rate BYTES] [--json]",
  takes = { name = "PID", least = 1, most = 1 },
  about = [[
A reload decides for memory to come; this moves what lives, while the program runs on:
between nodes, onto huge pages or off them, locked or let go; and what spilled over from
full nodes (loam stats), back to them. Shows how far it is, and
ends with a report by tag of what was moved, what was right, what was refused and why.
Ctrl-C ends it: what has been moved stays, what is half moved is brought back. A policy
with apply = "live" does this by itself after each reload. Exit status 0 if it came to its
end, whatever was refused; 1 if such a reload, or the end of the program, cut it short.]],
  options = {
    { "tag", "T", "only memory of this tag and of those under it", kind = "tag" },
    { "rate", "BYTES", "a second at most (default 1GiB)", kind = "size" },
    { "json", nil, "the report as a JSON object" },
  },
  example = [[
  $ loam rebalance 4242
  TAG             moved     6 GiB   12
  tensor.weights  refused  40 MiB    3  its nodes have no room
  6 GiB moved, 310 MiB were right, 40 MiB refused
]],
}

function rebalance.run(world, given)
  local words = {}
  if given.rate then words[1] = ("rate=%.0f"):format(math.max(given.rate, 1)) end
  return moving.run(world, given, moving.request("rebalance", words, given.tag))
end

return rebalance
