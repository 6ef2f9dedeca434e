-- posix.lua - the functions of the operating system that the command uses.

local native = require("loam.command.native")

local posix = {
  ENOENT = native.ENOENT,
  is_terminal = native.is_terminal,
  is_readable = native.is_readable,
  exists = native.exists,
  process = native.process, -- the id of this process; exec does not change it
  readlink = native.readlink,
  getenv = native.getenv, -- not os.getenv, which answers in a set-user-ID program, too
  setenv = native.setenv,
  wait = native.wait,
  wait_for = native.wait_for,
  listen = native.listen,
  listen_unix = native.listen_unix,
  clock = native.clock,
  cpu = function() return os.clock() * 1000 end, -- milliseconds of processor time of the command
  screen = { -- the terminal of `loam top`
    open = native.screen_open, close = native.screen_close, write = native.screen_write,
    size = native.screen_size, wait = native.screen_wait, suspend = native.screen_suspend,
  },
}

-- Makes a path absolute, without resolving symbolic links: a policy that is a symbolic link is
-- watched as a link, which may lead elsewhere later.
---@return string|nil path from the root
function posix.absolute(path)
  if path:sub(1, 1) == "/" then return path end
  local folder = native.folder()
  return folder and folder .. "/" .. path
end

-- Writes a whole file, which is made or replaced.
---@return boolean|nil ok
---@return string|nil words "PATH: reason" if the file cannot be written
function posix.write_file(path, text)
  local file, words = io.open(path, "w")
  if not file then return nil, words end
  local ok, reason = file:write(text)
  local is_closed, late = file:close()
  if ok and is_closed then return true end
  return nil, path .. ": " .. tostring(reason or late)
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
