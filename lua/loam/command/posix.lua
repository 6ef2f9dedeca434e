-- posix.lua - the functions of the operating system that the command uses.

local native = require("loam.command.native")

local PIECE = 2 ^ 20 -- bytes that are read at a time

local posix = {
  ENOENT = native.ENOENT,
  is_terminal = native.is_terminal,
  is_readable = native.is_readable,
  exists = native.exists,
  is_same_file = native.is_same_file,
  is_stream = native.is_stream,
  process = native.process, -- the id of this process; exec does not change it
  readlink = native.readlink,
  getenv = native.getenv, -- not os.getenv, which answers in a set-user-ID program, too
  setenv = native.setenv,
  why_not_governed = native.why_not_governed,
  wait_for = native.wait_for,
  listen = native.listen,
  listen_unix = native.listen_unix,
  clock = native.clock,
  cpu = native.cpu,
  screen = { -- the terminal of `loam top`
    open = native.screen_open, close = native.screen_close, write = native.screen_write,
    size = native.screen_size, wait = native.screen_wait, suspend = native.screen_suspend,
  },
  write = native.write, -- the whole of a file
  try_write = native.try_write, -- whether a file can be written
}

local ending -- the first signal that ended a wait

-- Sleeps. Returns whether Ctrl-C, or another signal that asks the command to end, ended the sleep
-- early. After the first call, these signals no longer end the command.
---@param ms number
---@return boolean
function posix.wait(ms)
  local signal = native.wait(ms)
  ending = ending or signal
  return signal ~= nil
end

-- Returns the exit status of a command that ends because a signal ended a wait. It is the status
-- that shells show for a command which the signal has ended: 130 for Ctrl-C, 143 for SIGTERM.
---@return integer
function posix.signal_status() return 128 + ending end

-- Makes a path absolute, without resolving symbolic links: a policy that is a symbolic link is
-- watched as a link, which may lead elsewhere later.
---@return string|nil path from the root
function posix.absolute(path)
  if path:sub(1, 1) == "/" then return path end
  local folder = native.folder()
  return folder and folder .. "/" .. path
end

-- Reads a whole file.
---@param most integer the bytes that it may have
---@return string|nil text
---@return string|nil words why it cannot be read
function posix.read(path, most)
  local file, message = io.open(path, "rb")
  if not file then return nil, message end
  local pieces, size = {}, 0
  repeat
    local piece
    piece, message = file:read(PIECE)
    pieces[#pieces + 1], size = piece, size + (piece and #piece or 0)
  until not piece or size > most
  file:close()
  if size > most then return nil, ("%s: it has more than %d MiB"):format(path, most / 2 ^ 20) end
  if message then return nil, ("%s: %s"):format(path, message) end
  return table.concat(pieces)
end

-- Returns the name of a process as the kernel has it; nil if the process has ended.
---@return string|nil
function posix.program(pid)
  local name = posix.read(("/proc/%d/comm"):format(pid), 4096)
  return name and name:match("^(.*)\n$")
end

local COMMAND_MOST = 4096 -- bytes of a command line

-- Returns the command line of a process, its words separated by spaces; of a longer one the first
-- COMMAND_MOST bytes. Returns nil if the process has none, or has ended.
---@return string|nil
function posix.command_line(pid)
  local file = io.open(("/proc/%d/cmdline"):format(pid), "rb")
  local text = file and file:read(COMMAND_MOST) or ""
  if file then file:close() end
  local words = text:gsub("%z", " "):gsub("%s+$", "")
  return words ~= "" and words or nil
end

-- Returns true if no folder of PATH has the name. execvp reports EACCES for such a name too, if a
-- folder of PATH may not be searched.
local function is_nowhere(name)
  if name:find("/") then return false end
  for folder in (posix.getenv("PATH") or ""):gmatch("[^:]+") do
    if native.exists(folder .. "/" .. name) then return false end
  end
  return true
end

-- Replaces this process by the command. Returns only if that fails, with errno and its message.
---@param command string[]
function posix.exec(command)
  local errno, words = native.exec(command)
  if errno == native.EACCES and is_nowhere(command[1]) then errno = native.ENOENT end
  return errno, words
end

return posix
