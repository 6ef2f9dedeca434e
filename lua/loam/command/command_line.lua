-- command_line.lua - the command line of a process, as ps(1) shows it. Many processes run one
-- program, such as python3, with different arguments. A server such as PostgreSQL writes there what
-- each of its processes does.

local boards = require("loam.command.boards")
local json = require("loam.report.json")

local command_line = {}

-- Returns the command line that a process has at present. Returns nil for a process that has ended
-- or is in another PID namespace. The process does nothing for that.
---@param status table of the process's board
---@return string|nil
function command_line.of(context, status)
  return boards.has_process(status) and context.posix.command_line(status.pid) or nil
end

-- Adds the command line of a process to its status, and to the status as text.
---@param row loam.BoardRow
function command_line.add(context, row)
  local words = command_line.of(context, row.status)
  if not words then return end
  row.status.command = words
  boards.add_member(row, '"command":' .. json.encode(words))
end

return command_line
