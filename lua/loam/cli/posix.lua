-- posix - the few calls of the operating system that the command line makes itself.

local ffi = require("ffi")

ffi.cdef [[
int isatty(int fd);
ssize_t readlink(const char *path, char *buffer, size_t size);
char *getcwd(char *buffer, size_t size);
int setenv(const char *name, const char *value, int overwrite);
int unsetenv(const char *name);
int access(const char *path, int mode);
int execvp(const char *file, char *const argv[]);
char *strerror(int error);
int getpid(void);
typedef struct { unsigned long bits[16]; } loam_sigset;
struct loam_timespec { long seconds, nanoseconds; };
int sigemptyset(loam_sigset *set);
int sigaddset(loam_sigset *set, int signal);
int sigprocmask(int how, const loam_sigset *set, loam_sigset *old);
int sigtimedwait(const loam_sigset *set, void *info, const struct loam_timespec *timeout);
]]

local posix = {}

local C = ffi.C
local PATH_MAX = 4096
local READABLE = 4 -- R_OK

-- errno's of <errno.h>, equal on every Linux.
posix.ENOENT = 2
local EACCES = 13

function posix.is_terminal(fd)
  return C.isatty(fd) == 1
end

---@return string|nil where the symbolic link points
function posix.readlink(path)
  local buffer = ffi.new("char[?]", PATH_MAX)
  local length = C.readlink(path, buffer, PATH_MAX)
  return length > 0 and ffi.string(buffer, length) or nil
end

-- Not resolved: a policy that is a symbolic link is followed where the link leads next, too.
---@return string|nil path from the root
function posix.absolute(path)
  if path:sub(1, 1) == "/" then return path end
  local buffer = ffi.new("char[?]", PATH_MAX)
  if C.getcwd(buffer, PATH_MAX) == nil then return nil end
  return ffi.string(buffer) .. "/" .. path
end

function posix.is_readable(path)
  return C.access(path, READABLE) == 0
end

---@return number the id of this process, which exec keeps
function posix.process()
  return C.getpid()
end

local SIGINT, SIGTERM, SIG_BLOCK = 2, 15, 0
local waited

-- Sleeps; from the first call on Ctrl-C does not end this process, but this sleep.
---@return boolean interrupted
function posix.wait(ms)
  if not waited then
    waited = ffi.new("loam_sigset")
    C.sigemptyset(waited)
    C.sigaddset(waited, SIGINT)
    C.sigaddset(waited, SIGTERM)
    C.sigprocmask(SIG_BLOCK, waited, nil)
  end
  local time = ffi.new("struct loam_timespec", math.floor(ms / 1000), ms % 1000 * 1e6)
  return C.sigtimedwait(waited, nil, time) > 0
end

-- nil unsets.
function posix.setenv(name, value)
  if value then C.setenv(name, value, 1) else C.unsetenv(name) end
end

-- execvp says EACCES also for a name that is nowhere, if a folder of PATH may not be searched.
local function is_nowhere(name)
  if name:find("/") then return false end
  for folder in (os.getenv("PATH") or ""):gmatch("[^:]+") do
    if C.access(folder .. "/" .. name, 0) == 0 then return false end
  end
  return true
end

-- Becomes the command; comes back only if it cannot, with errno and its words.
---@param command string[]
function posix.exec(command)
  local argv = ffi.new("char *[?]", #command + 1)
  for i, word in ipairs(command) do argv[i - 1] = ffi.cast("char *", word) end
  C.execvp(command[1], argv)
  local errno = ffi.errno()
  if errno == EACCES and is_nowhere(command[1]) then errno = posix.ENOENT end
  return errno, ffi.string(C.strerror(errno))
end

return posix
