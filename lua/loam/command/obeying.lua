-- obeying.lua - tells how far the processes on the boards are with a policy, for `loam wait`.

local boards = require("loam.command.boards")
local describe = require("loam.command.describe")
local followers = require("loam.command.followers")
local terminal = require("loam.command.terminal")

local obeying = {}

---@class loam.Obeying lists of loam.BoardRow statuses
---@field obeyed table[] the policy is live in the process
---@field published table[] the process obeys the policy with its next request for memory
---@field refused table[] the process keeps the policy that it had
---@field unseen table[] none of these; `state` is nil if the process is on no board
---@field ended table[] of the processes that were named: those that have ended
---@field others table[] the boards of other versions, as of boards.read; none where processes are
--- named

-- Tells how far a process is. A process that obeys a policy and refused to load it once more obeys.
-- A refusal that is older than the publication of the policy counts no more.
---@param status table the keys of `loam status --json`
---@param hash string of the policy's text
---@return string the name of a list of loam.Obeying
function obeying.of(status, hash)
  if status.generation > 0 and status.hash == hash then return "obeyed" end
  local latest = status.latest
  if latest and latest.hash == hash and status.published < latest.number then return "published" end
  if status.refused_hash == hash then return "refused" end
  return "unseen"
end

-- Tells how far a process that was named is. `status` is nil if the process is on no board: one
-- that has just started has no place there yet.
---@param others table[] as of boards.read
---@return string list
---@return table status
local function of_named(context, pid, status, hash, others)
  if status and status.state ~= "ended" then return obeying.of(status, hash), status end
  local is_there = not status and context.posix.exists("/proc/" .. pid)
  local program = is_there and context.posix.program(pid) or "process"
  status = status or { pid = pid, program = program }
  if is_there and #others > 0 then
    status.unread = boards.other_words(context, boards.maps(context, pid), others)
  end
  return is_there and "unseen" or "ended", status
end

-- Returns the boards of other versions whose programs may follow a policy file.
local function boards_of_followers(context, others, file)
  local list = {}
  for _, board in ipairs(others) do
    if followers.has_board(context, board, file) then list[#list + 1] = board end
  end
  return list
end

-- Looks at all boards once.
---@param pids integer[]|nil the processes that count; nil: all that live
---@param file string|nil only the processes that follow this policy file count, if there is one
---@return loam.Obeying
function obeying.look(context, hash, pids, file)
  local found = { obeyed = {}, published = {}, refused = {}, unseen = {}, ended = {} }
  local by_pid = {}
  local rows, others = boards.read(context)
  found.others = pids and {} or file and boards_of_followers(context, others, file) or others
  for _, row in ipairs(rows) do
    local status = row.status
    by_pid[status.pid] = status
    local counts = not pids and status.state ~= "ended"
    if counts and (not file or followers.has_process(context, status, file)) then
      table.insert(found[obeying.of(status, hash)], status)
    end
  end
  for _, pid in ipairs(pids or {}) do
    local list, status = of_named(context, pid, by_pid[pid], hash, others)
    table.insert(found[list], status)
  end
  return found
end

-- ---- words

-- Returns the first line of why the latest load of a process was refused; nil: it was not.
local function refusal(status)
  local words = status.last and status.last.error
  return words and words ~= "" and terminal.plain(words:match("^[^\n]*")) or nil
end

-- Says why a process has not seen the policy, as far as its row tells.
local function reason(status)
  if not status.state then return status.unread or "it has no place on a board" end
  if status.state == "stopped" then return "it is stopped" end
  if status.state == "unknown" then return "it is in another PID namespace, and may have ended" end
  local words = refusal(status) -- of another text, or of a file that could not be read
  if words then return "its latest load was refused: " .. words end
  if status.generation == 0 then return "it has the built-in default" end
  local path = status.path ~= "" and terminal.plain(status.path) or nil
  if path and not status.watching then
    return ("nothing watches its file %s; `loam reload %d` loads it"):format(path, status.pid)
  end
  return ("it has hash %s of %s"):format(status.hash, path or "a policy without a file")
end

-- By list of loam.Obeying: function(who, status, are_many) that says how far these processes are.
local WORDS = {}

function WORDS.refused(who, status)
  return ("%s refused it: %s"):format(who, refusal(status) or "it gives no reason")
end

function WORDS.published(who, status, are_many)
  local words = status.state == "stopped" and (are_many and "are stopped" or "is stopped")
    or (are_many and "have requested no memory since" or "has requested no memory since")
  return ("published, not yet obeyed by %s, which %s"):format(who, words)
end

function WORDS.unseen(who, status, are_many)
  local why = reason(status)
  if not are_many then return ("%s has not seen it: %s"):format(who, why) end
  why = why:gsub("^it is ", "they are "):gsub("^it has ", "they have "):gsub("^its ", "their ")
  return ("%s have not seen it: %s"):format(who, why)
end

function WORDS.ended(who, _, are_many)
  return who .. (are_many and " have ended" or " has ended")
end

local MOST_ALIKE = 8 -- processes with equal words that have a line each

-- Says how far the processes of a list are. Each process has a line, but more than MOST_ALIKE
-- processes with equal words have one line together.
---@param list string the list of loam.Obeying that has the processes
---@return string[]
function obeying.lines(list, processes)
  local groups, by_words = {}, {}
  for _, status in ipairs(processes) do
    local words = WORDS[list]("", status)
    if not by_words[words] then
      by_words[words] = {}
      groups[#groups + 1] = by_words[words]
    end
    table.insert(by_words[words], status)
  end
  local lines = {}
  for _, group in ipairs(groups) do
    local first, more = group[1], #group - 1
    if #group > MOST_ALIKE then
      local who = ("%s and %d others"):format(describe.program(first), more)
      lines[#lines + 1] = WORDS[list](who, first, true)
    else
      for _, status in ipairs(group) do
        lines[#lines + 1] = WORDS[list](describe.program(status), status)
      end
    end
  end
  return lines
end

return obeying
