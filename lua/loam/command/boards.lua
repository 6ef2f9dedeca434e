-- boards.lua - the processes that boards show: living ones, and last figures of ended ones.

local json = require("loam.report.json")
local terminal = require("loam.command.terminal")
local units = require("loam.command.units")

local boards = {}

---@class loam.BoardRow
---@field status table the keys of `loam status --json`
---@field text string the status as it came, because a number in it can be too large for a double

local function is_alive(status)
  return status.state ~= "ended"
end

-- States in the order in which a row is preferred. A process in another PID namespace is `unknown`:
-- its row must not hide a process of this machine that has the same id.
local RANK = { ended = 1, unknown = 2, stopped = 3, running = 3 }

-- Of two rows with one process id, returns the one to show: a living one, else the newer one. An
-- older one is from an earlier program of the process, or from an earlier process.
local function better(a, b)
  if not a then return b end
  local first, second = RANK[a.status.state] or 3, RANK[b.status.state] or 3
  if first ~= second then return first > second and a or b end
  return (b.status.since_ms or 0) > (a.status.since_ms or 0) and b or a
end

-- Returns whether a status describes this command. In another PID namespace, such as a container,
-- another program may have the process id of this command. A command that `docker exec` started
-- under loam does not know its namespace, so its own state is `unknown` too.
local function is_command(context, status)
  if status.pid ~= context.posix.process() then return false end
  return status.state ~= "unknown" or status.program == "loam"
end

-- Reads all boards that this user may see. The command itself is left out: it is on a board when it
-- runs under loam. Raises an error if it has too few descriptors or too little memory to read the
-- boards: a program that is not shown would seem not to run.
---@return loam.BoardRow[] one for each process id, in ascending order
---@return table[] the boards of other versions of loam, which cannot be read: each has a `folder`
--- and a `name`
function boards.read(context)
  local by_pid, rows, others = {}, {}, {}
  local texts, words = context.api.boards()
  if words then error({ words = "the boards of programs cannot be read: " .. words }, 0) end
  for _, text in ipairs(texts) do
    local status = json.decode(text)
    local row = status and { status = status, text = text }
    if row and status.other_version then
      others[#others + 1] = { folder = status.folder, name = status.other_version }
    elseif row and not is_command(context, status) then
      by_pid[status.pid] = better(by_pid[status.pid], row)
    end
  end
  for _, row in pairs(by_pid) do rows[#rows + 1] = row end
  table.sort(rows, function(a, b) return a.status.pid < b.status.pid end)
  return rows, others
end

-- Returns whether the process of a status lives, and has its process id also for this command.
function boards.has_process(status)
  return is_alive(status) and status.state ~= "unknown"
end

-- Adds a member to a status as text.
---@param row loam.BoardRow
---@param member string name and value in JSON
function boards.add_member(row, member)
  row.text = row.text:gsub("}%s*$", "") .. "," .. member .. "}"
end

---@return loam.BoardRow[] the living processes
---@return table[] as of boards.read
function boards.living(context)
  local rows, all, others = {}, boards.read(context)
  for _, row in ipairs(all) do
    if is_alive(row.status) then rows[#rows + 1] = row end
  end
  return rows, others
end

-- Warns of the boards of other versions of loam, in one line for each folder.
---@param others table[] as of boards.read
---@param name string the verb
---@param outcome string the consequence for the programs on these boards
function boards.warn_of_others(context, others, name, outcome)
  local folders, names = {}, {}
  for _, board in ipairs(others) do
    if not names[board.folder] then
      folders[#folders + 1] = board.folder
      names[board.folder] = {}
    end
    table.insert(names[board.folder], board.name)
  end
  for _, folder in ipairs(folders) do
    local all, boards_there = names[folder], "this board"
    table.sort(all)
    if #all == 2 then boards_there = "this and one other board" end
    if #all > 2 then boards_there = ("this and %d other boards"):format(#all - 1) end
    context.warn(("loam %s: %s: programs on %s have another version of loam than this command, %s, "
      .. "%s until they are started again\n"):format(name, terminal.plain(folder .. "/" .. all[1]),
      boards_there, context.api.version(), outcome))
  end
end

-- Returns the paths of the boards of other versions, for an answer in JSON; nil: there are none.
---@param others table[] as of boards.read
---@return string[]|nil
function boards.other_paths(others)
  local paths = json.array({})
  for i, board in ipairs(others) do paths[i] = board.folder .. "/" .. board.name end
  table.sort(paths)
  return #paths > 0 and paths or nil
end

-- Says that the command sees no program. With a context, also says whether the folder that the
-- environment names is none.
---@param others table[] as of boards.read
---@param context table|nil
function boards.none_words(others, context)
  local folder = context and context.getenv("LOAM_CONTROL_DIR") or ""
  local is_none = folder ~= "" and not context.posix.exists(folder .. "/.")
  return "no program of yours runs under " .. (#others > 0 and "this version of loam" or "loam")
    .. (is_none and ("; LOAM_CONTROL_DIR names %s, which is no folder"):format(
      terminal.plain(folder)) or "")
end

local MAPS_MOST = 16 * 2 ^ 20 -- bytes of /proc/PID/maps

-- Returns the map of the memory of a process; "" if it cannot be read.
---@return string
function boards.maps(context, pid)
  return context.posix.read(("/proc/%d/maps"):format(pid), MAPS_MOST) or ""
end

-- Says which board of another version of loam a process uses; nil: it uses none. The map may have
-- another path of the folder, as where the environment names it through a symbolic link. The name
-- of the file tells a board from all others.
---@param maps string of boards.maps
---@param others table[] as of boards.read
---@return string|nil
function boards.other_words(context, maps, others)
  for _, board in ipairs(others) do
    if maps:find("/" .. board.name .. "\n", 1, true) then
      return ("its board %s has another version of loam than this command, %s"):format(
        terminal.plain(board.folder .. "/" .. board.name), context.api.version())
    end
  end
  return nil
end

---@return loam.BoardRow|nil
function boards.find(context, pid)
  for _, row in ipairs(boards.read(context)) do
    if row.status.pid == pid then return row end
  end
  return nil
end

-- Returns the state of a process in words. Nobody tells when a killed process ended, so its time is
-- the one at which its absence was first noticed.
---@return string
function boards.state(status, now)
  if status.state ~= "ended" then return status.state end
  if (status.ended_at or 0) == 0 then return "ended" end
  local ago = units.ago(status.ended_at, now)
  return "ended " .. ago .. (status.announced and "" or " or earlier")
end

-- Returns the text of a policy from an image on the board that a program follows: the board has the
-- last two that were published there. Returns nil if the board has no such text.
---@param hash string of the text
---@return string|nil
function boards.policy_text(context, status, hash)
  local text = status.board and context.api.board_text(status.board, hash)
  return text or nil
end

return boards
