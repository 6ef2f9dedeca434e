-- sleep_order.lua - sends a host the order of `loam sleep` or `loam wake`, and shows its answer.

local hosts = require("loam.command.hosts")
local terminal = require("loam.command.terminal")
local units = require("loam.command.units")

local sleep_order = {}

-- How long the command waits for an answer: the host copies the contents of the memory first.
local PATIENCE_MS = 600000

-- Returns the words for a tag: " of tag 'a.b', or of a tag under it"; without a tag an empty text.
local function of_tag(tag)
  return tag and (" of tag '%s', or of a tag under it"):format(terminal.plain(tag)) or ""
end

-- Sends a request and shows the answer.
---@param ability string|nil the words for memory that the order is for, such as "can sleep"; with
--- them, an order that finds no such memory is an error
---@param done string the word for the memory after the order, such as "asleep"
---@return integer exit status
function sleep_order.run(context, given, request, ability, done)
  local pid = hosts.pid(given[1])
  local answer, words, text = hosts.ask(context, pid, request, PATIENCE_MS)
  if not answer then context.fail(words) end
  if not answer.ok then context.fail(answer.error or "no reason was given") end
  if answer.bytes == 0 and answer.asleep_bytes == 0 and ability then
    context.fail(("process %d has no device memory%s, that %s"):format(pid, of_tag(given.tag),
      ability))
  end
  if given.json then
    context.write(text .. "\n")
  elseif answer.bytes == 0 and ability then
    context.write(("%s was asleep already\n"):format(units.bytes(answer.asleep_bytes)))
  else
    context.write(("%s %s\n"):format(units.bytes(answer.bytes), done))
  end
  return 0
end

return sleep_order
