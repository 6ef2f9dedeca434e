-- api - loam.h for the command line: its declarations are the header's own text.
--
-- Each function returns a value, or nil, the words of loam_error and perhaps the loam_status.
-- Specs put a table of the same functions in its place.

local ffi = require("ffi")

ffi.cdef(require("loam.cdef"))

-- C calls back into Lua here, which code compiled by the JIT does not survive.
jit.off()

local api = {}

local C = ffi.C

local function failure()
  local words = ffi.string(C.loam_error())
  return nil, words ~= "" and words or "no reason was given"
end

api.EIO = tonumber(C.LOAM_EIO)

-- What call(write) passes to its loam_write_fn, as one string.
local function collected(call)
  local pieces = {}
  local write = ffi.cast("loam_write_fn", function(_, text, length)
    pieces[#pieces + 1] = ffi.string(text, length)
  end)
  local status = call(write)
  write:free()
  if status == 0 then return table.concat(pieces) end
  local _, words = failure()
  return nil, words, tonumber(status)
end

function api.version()
  return ffi.string(C.loam_version())
end

-- `query` is loam_policy_inspect's.
function api.inspect(path, query)
  return collected(function(write) return C.loam_policy_inspect(path, query, write, nil) end)
end

function api.ask(pid, request, timeout_ms)
  return collected(function(write) return C.loam_ask(pid, request, timeout_ms, write, nil) end)
end

function api.machine()
  return collected(function(write) return C.loam_machine(write, nil) end)
end

---@return integer[]|nil pids of the hosts of this user, ascending
function api.hosts()
  local pids = {}
  local add = ffi.cast("loam_pid_fn", function(_, pid) pids[#pids + 1] = pid end)
  local status = C.loam_hosts(add, nil)
  add:free()
  if status ~= 0 then return failure() end
  table.sort(pids)
  return pids
end

return api
