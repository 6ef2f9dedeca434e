-- figures.lua - the figures of a process's memory: read from outside, asked for, or its last ones.

local boards = require("loam.command.boards")
local hosts = require("loam.command.hosts")

local figures = {}

-- Returns the figures of a process. The command reads the process from outside. If the kernel
-- refuses that, or the process has another version of loam, the command asks over the process's
-- socket. If that fails too, they are the last figures on the board. Without any, the command
-- fails.
---@param pid integer
---@return string text in JSON: the keys of `loam stats --json`, or those of `loam status --json`
---@return boolean is_last whether the answer is the process's row on a board
---@return string|nil words why a living process could be neither read nor asked
function figures.find(context, pid)
  local text, words = context.api.look(pid)
  if text then return text, false end
  local row = boards.find(context, pid)
  if row and row.status.state == "ended" then return row.text, true end
  local answer, _, asked = hosts.ask(context, pid, "stats")
  if answer and answer.ok == false then context.fail(answer.error or "no reason was given") end
  if answer then return asked, false end
  if not row then context.fail(words) end
  row = boards.find(context, pid) or row -- it may have ended in the meantime
  return row.text, true, row.status.state ~= "ended" and words or nil
end

return figures
