-- sleep.lua - the command `loam sleep`: a running program gives up the device memory of a tag.

local arguments = require("loam.command.arguments")
local sleep_order = require("loam.command.sleep_order")

local sleep = {
  summary = "makes a running program give up the GPU memory of a tag",
  usage = "PID --tag T [--to WHERE] [--json]",
  takes = { name = "PID", least = 1, most = 1 },
  about = [[
The contents are moved, and the GPU has the memory free for other programs;
`loam wake` gives the program memory and contents back at the same addresses.
Only memory of a strategy loam.device { pool = "sleep" } can sleep. The program
must do no work with that memory until it is awake: such work ends with an
illegal address. So use this command for programs that are idle, or that agree
on it with you.

--to says where the contents go:
  pinned   pinned memory of the host (the default)
  discard  nowhere: they are lost, and the program has to make them again
  FOLDER   a file without a name in this folder of the program's machine

The command waits for the copies, ten minutes at most. Ctrl-C ends the command;
the program completes the copies. If there is no room for the contents, nothing
changes. Exit status 0: the memory is asleep. 1: it could not be done, or there
is no such memory.]],
  options = {
    { "tag", "T", "memory of this tag and of the tags under it", kind = "some_tag",
      required = true },
    { "to", "WHERE", "pinned, discard or the path of a folder" },
    { "json", nil, "the answer as a JSON object" },
  },
  example = [[
  $ loam sleep 4242 --tag model.a
  10 GiB asleep
]],
}

-- Returns the place as a host reads it. A relative path is one of this command's folder.
local function place(context, to)
  if to == "pinned" or to == "discard" then return to end
  if to == "" or to:find("[\n%z]") or to:find(" tag=", 1, true) then
    arguments.misused(("--to: '%s' is not possible; write pinned, discard or the path of a folder")
      :format(arguments.plain(to)))
  end
  local path = context.posix.absolute(to)
  if path then return path end
  return context.fail("the current folder was removed; write --to as an absolute path")
end

function sleep.run(context, given)
  local request = ("sleep %s tag=%s"):format(place(context, given.to or "pinned"), given.tag)
  return sleep_order.run(context, given, request, "can sleep", "asleep")
end

return sleep
