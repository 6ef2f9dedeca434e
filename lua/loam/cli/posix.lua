-- posix - what the command line asks of the operating system.

local native = require("loam.cli.native")

local posix = {
  ENOENT = native.ENOENT,
  is_terminal = native.is_terminal,
  is_readable = native.is_readable,
  process = native.process, -- the id of this process, which exec keeps
  readlink = native.readlink,
  getenv = native.getenv, -- not os.getenv, which answers in a set-user-ID program, too
  setenv = native.setenv,
  wait = native.wait,
}

-- Not resolved: a policy that is a symbolic link is followed where the link leads next, too.
---@return string|nil path from the root
function posix.absolute(path)
  if path:sub(1, 1) == "/" then return path end
  local folder = native.folder()
  return folder and folder .. "/" .. path
end

-- execvp says EACCES also for a name that is nowhere, if a folder of PATH may not be searched.
local function is_nowhere(name)
  if name:find("/") then return false end
  for folder in (posix.getenv("PATH") or ""):gmatch("[^:]+") do
    if native.exists(folder .. "/" .. name) then return false end
  end
  return true
end

-- Becomes the command; comes back only if it cannot, with errno and its words.
---@param command string[]
function posix.exec(command)
  local errno, words = native.exec(command)
  if errno == native.EACCES and is_nowhere(command[1]) then errno = native.ENOENT end
  return errno, words
end

return posix
