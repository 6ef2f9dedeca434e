-- wake.lua - the command `loam wake`: a running program takes back its device memory that sleeps.

local sleep_order = require("loam.command.sleep_order")

local wake = {
  summary = "gives a running program its GPU memory back",
  usage = "PID [--tag T] [--json]",
  takes = { name = "PID", least = 1, most = 1 },
  about = [[
Memory that `loam sleep`, or the program itself, has put to sleep gets its
addresses and its contents again. If the GPU has too little memory free,
nothing changes, and the memory sleeps on. The command waits for the copies,
ten minutes at most. Exit status 0: no such memory is asleep any more. 1: it
could not be done.]],
  options = {
    { "tag", "T", "only memory of this tag and of the tags under it", kind = "some_tag" },
    { "json", nil, "the answer as a JSON object" },
  },
  example = [[
  $ loam wake 4242 --tag model.a
  10 GiB awake
]],
}

function wake.run(context, given)
  local request = given.tag and "wake " .. given.tag or "wake"
  return sleep_order.run(context, given, request, nil, "awake")
end

return wake
