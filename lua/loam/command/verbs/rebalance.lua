-- rebalance.lua - makes a running program move its live memory to where its policy now wants it.

local move_job = require("loam.command.move_job")

local rebalance = {
  summary = "moves the live memory of a program to where its policy wants it",
  usage = "PID [--tag T] [--rate BYTES] [--json]",
  takes = { name = "PID", least = 1, most = 1 },
  about = [[
A reload decides about new memory only. This command also moves the live memory
of a program to where its policy wants it, while the program runs: between
nodes, onto huge pages or off them, locked or not locked; and memory that
spilled over from full nodes (`loam stats`) back to them. It shows its
progress, and reports by tag at the end what was moved, what was in place
already, and what was refused and why.

Ctrl-C stops it: memory that was moved stays moved, and a block that is half
moved is brought back. A policy with apply = "live" does all this by itself
after each reload. Exit status 0: the move came to its end, even if some memory
was refused. 1: such a reload, or the end of the program, cut it short. 130:
Ctrl-C stopped it. 143: SIGTERM did.]],
  options = {
    { "tag", "T", "only memory of this tag and of the tags under it", kind = "some_tag" },
    { "rate", "BYTES", "the most to move in a second (default 1GiB)", kind = "size",
      least = 1 },
    { "json", nil, "the report as a JSON object" },
  },
  example = [[
  $ loam rebalance 4242
  TAG             RESULT      BYTES  BLOCKS  WHY
  tensor.weights  moved       6 GiB      12
  numpy.data      in place  310 MiB     280
  tensor.weights  refused    40 MiB       3  its nodes have no room
  6 GiB moved, 310 MiB in place already, 40 MiB refused
]],
}

function rebalance.run(context, given)
  local words = {}
  if given.rate then words[1] = ("rate=%.0f"):format(given.rate) end
  return move_job.run(context, given, move_job.request("rebalance", words, given.tag))
end

return rebalance
