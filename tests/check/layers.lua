-- layers.lua - includes point one way: a file of the core includes headers of its own layer or of
-- those before it, everything else sees loam.h alone, and each foreign header has its one place.
package.path = "tests/check/?.lua;" .. package.path
local files = require("_files")

-- { ["pool"] = 3, ... }, from the list in core/CMakeLists.txt; sys_linux.c implements sys.h.
local function read_layers()
  local list = files.read("core/CMakeLists.txt"):match("set%(layers%s*(.-)%)")
  local layer_of, count = {}, 0
  for layer in list:gmatch('"(.-)"') do
    count = count + 1
    for name in layer:gmatch("([%w_]+)%.[ch]") do layer_of[name] = count end
  end
  return layer_of, count
end

-- Headers with one place in the core: patterns of the files that may include them.
local places = {
  ["lua.h"] = "^luajit$", ["lauxlib.h"] = "^luajit$", ["lualib.h"] = "^luajit$",
  ["luajit.h"] = "^luajit$",
  ['"luajit.h"'] = "^vm$ ^seam$ ^linked$ ^script$ ^native$ ^command$",
  ["sys/mman.h"] = "^sys_linux$ ^sys_file$",
  ["sys/syscall.h"] = "^sys_linux$", ["numaif.h"] = "^sys_linux$",
  ["linux/mempolicy.h"] = "^sys_linux$", ["linux/membarrier.h"] = "^sys_linux$",
  ["sys/inotify.h"] = "^watch$", ["sys/un.h"] = "^control$ ^ask$",
  ["dlfcn.h"] = "^luajit$ ^gpu_cuda_find$ ^manager$", ["cuda.h"] = "^gpu_cuda$",
}

local function check_place(where, name, header)
  if not places[header] or header == ('"%s.h"'):format(name) then return end
  for pattern in places[header]:gmatch("%S+") do
    if name:find(pattern) then return end
  end
  files.complain(where, "%s belongs to %s", header, places[header])
end

local function check_core(path, layer_of, last)
  local name = path:match("([%w_]+)%.[ch]$")
  local own = name == "main" and last + 1 or layer_of[name]
  if not own then
    return files.complain(path, "is in no layer of core/CMakeLists.txt")
  end
  files.each_line(path, function(line, number)
    local where = path .. ":" .. number
    local foreign = line:match("^%s*#%s*include%s*<(.-)>")
    local header = line:match('^%s*#%s*include%s*"(.-)"')
    if foreign then check_place(where, name, foreign) end
    if not header or header == "loam.h" then return end
    check_place(where, name, '"' .. header .. '"')
    local layer = layer_of[header:match("^([%w_]+)%.h$")]
    if not layer then
      files.complain(where, '"%s" is in no layer of core/CMakeLists.txt', header)
    elseif layer > own then
      files.complain(where, '"%s" is of a later layer', header)
    end
  end)
end

-- Outside the core a file may include loam.h, what lies beside it, and the system's headers.
local function check_outside(path)
  local folder = path:match("^(.*)/")
  files.each_line(path, function(line, number)
    local header = line:match('^%s*#%s*include%s*"(.-)"')
    if not header or header == "loam.h" then return end
    local beside = io.open(folder .. "/" .. header)
    if beside then return beside:close() end
    files.complain(path .. ":" .. number, '"%s": only loam.h is for others', header)
  end)
end

local layer_of, last = read_layers()
local core = files.find("core", "c h")
for _, path in ipairs(core) do
  if path ~= "core/include/loam.h" then check_core(path, layer_of, last) end
end
for _, path in ipairs(files.find("bindings examples", "c h cc hpp")) do check_outside(path) end
files.finish(("%d files of the core in %d layers"):format(#core, last))
