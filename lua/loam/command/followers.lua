-- followers.lua - tells which programs follow a policy file, for `loam wait --followers`.
--
-- A process of a container may see another file at the same path, or the same file at another path.
-- So the file is looked up below the root of the process.

local boards = require("loam.command.boards")

local followers = {}

-- Returns LOAM_POLICY in the environment with which a process was started.
local function policy_of_environment(context, pid)
  local text = context.api.environment(pid)
  return text and ("\0" .. text):match("%zLOAM_POLICY=([^%z]+)")
end

-- Returns whether a process finds the file at `path`. Where its root cannot be seen, the paths are
-- compared.
local function finds(context, pid, path, file)
  local is_same = context.posix.is_same_file(("/proc/%d/root%s"):format(pid, path), file)
  if is_same == nil then return path == file end
  return is_same
end

-- Returns whether a process on a board follows the file. A process with the built-in default shows
-- no path. The id of a process in another PID namespace means another process here.
---@param status table the keys of `loam status --json`
---@param file string an absolute path
---@return boolean
function followers.has_process(context, status, file)
  if status.state == "unknown" then return status.path == file end
  local path = status.path ~= "" and status.path or policy_of_environment(context, status.pid)
  return path ~= nil and finds(context, status.pid, path, file)
end

-- Returns whether the programs on a board of another version of loam may follow the file. The name
-- of a board begins with the id of the process that made it. A board that is seen through a root
-- below /proc belongs to a container, which has a loam of its own.
---@param board table as of boards.read
---@param file string an absolute path
---@return boolean
function followers.has_board(context, board, file)
  if board.folder:find("^/proc/%d+/root/") then return false end
  local pid = tonumber(board.name:match("^(%d+)%-"))
  local is_maker = pid and boards.other_words(context, boards.maps(context, pid), { board })
  local path = is_maker and policy_of_environment(context, pid)
  return not path or finds(context, pid, path, file)
end

return followers
