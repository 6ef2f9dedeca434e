-- file_lines.lua - reads a text file line by line, through libc: the Lua state of a policy has no
-- io library.

local ffi = require("ffi")

local file_lines = {}

local CHUNK = 65536
local MAX_LINE = 4096

pcall(ffi.cdef, [[
int open(const char *path, int flags, ...);
long read(int fd, void *buffer, size_t size);
int close(int fd);
char *strerror(int number);
]])

local function refusal(path)
  return nil, path .. ": " .. ffi.string(ffi.C.strerror(ffi.errno()))
end

local O_CLOEXEC = 524288

-- Calls `visit` for each whole line of `text`. Returns the text after the last newline.
local function split(text, visit)
  local from = 1
  while true do
    local stop = string.find(text, "\n", from, true)
    if not stop then return string.sub(text, from) end
    visit((string.gsub(string.sub(text, from, stop - 1), "\r$", "")))
    from = stop + 1
  end
end

local function read(fd, path, visit)
  local buffer, rest = ffi.new("char[?]", CHUNK), ""
  while true do
    local n = tonumber(ffi.C.read(fd, buffer, CHUNK))
    if n < 0 then return refusal(path) end
    if n == 0 then break end
    rest = split(rest .. ffi.string(buffer, n), visit)
    if #rest > MAX_LINE then
      return nil, path .. ": a line is longer than " .. MAX_LINE .. " bytes"
    end
  end
  if rest ~= "" then visit(rest) end
  return true
end

-- Calls `visit(line)` for each line of the file.
---@return true|nil, string|nil message
function file_lines.each(path, visit)
  local fd = ffi.C.open(path, O_CLOEXEC)
  if fd < 0 then return refusal(path) end
  local ok, result, message = pcall(read, fd, path, visit)
  ffi.C.close(fd)
  if not ok then error(result, 0) end
  return result, message
end

return file_lines
