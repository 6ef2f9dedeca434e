-- layers.lua - the folders of the core depend one way: a file includes headers of its own folder
-- and of folders before it. Everything outside the core sees loam.h alone, and each foreign header
-- has its one place.
package.path = "tests/check/?.lua;" .. package.path
local files = require("_files")

-- { os = 1, pages = 2, ... }, from the list in core/CMakeLists.txt.
local function read_folders()
  local list = files.read("core/CMakeLists.txt"):match("set%(folders (.-)%)")
  local rank, count = {}, 0
  for folder in list:gmatch("%S+") do
    count = count + 1
    rank[folder] = count
  end
  return rank, count
end

local rank, count = read_folders()

-- Headers with one place in the core: patterns of the files that may include them.
local places = {
  ["lua.h"] = "^luajit$", ["lauxlib.h"] = "^luajit$", ["lualib.h"] = "^luajit$",
  ["luajit.h"] = "^luajit$",
  ['"script/luajit.h"'] = "^vm$ ^seam$ ^linked$ ^script$ ^native$ ^command$",
  ["sys/mman.h"] = "^sys_linux$ ^sys_file$",
  ["sys/syscall.h"] = "^sys_linux$", ["numaif.h"] = "^sys_linux$",
  ["linux/mempolicy.h"] = "^sys_linux$", ["linux/membarrier.h"] = "^sys_linux$",
  ["sys/inotify.h"] = "^watch$", ["sys/un.h"] = "^control$ ^ask$",
  ["dlfcn.h"] = "^luajit$ ^gpu_cuda_find$ ^manager$", ["cuda.h"] = "^gpu_cuda$",
}

local function check_place(where, name, header)
  if not places[header] or header:find("/" .. name .. ".h", 1, true) then return end
  for pattern in places[header]:gmatch("%S+") do
    if name:find(pattern) then return end
  end
  files.complain(where, "%s belongs to %s", header, places[header])
end

local function check_includes(path)
  local folder, name = path:match("^core/([%w_]+)/([%w_]+)%.[ch]$")
  if not rank[folder] then
    return files.complain(path, "is in no folder of core/CMakeLists.txt")
  end
  files.each_line(path, function(line, number)
    local where = path .. ":" .. number
    local foreign = line:match("^%s*#%s*include%s*<(.-)>")
    local header = line:match('^%s*#%s*include%s*"(.-)"')
    if foreign then check_place(where, name, foreign) end
    if not header or header == "loam.h" then return end
    check_place(where, name, '"' .. header .. '"')
    local of = rank[header:match("^([%w_]+)/[%w_]+%.h$")]
    if not of then
      files.complain(where, '"%s": write it as "folder/file.h"', header)
    elseif of > rank[folder] and name ~= "ledger" then
      files.complain(where, '"%s" is of a later folder', header)
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

local core = files.find("core", "c h")
for _, path in ipairs(core) do
  if path ~= "core/include/loam.h" then check_includes(path) end
end
for _, path in ipairs(files.find("bindings examples", "c h cc hpp")) do check_outside(path) end
files.finish(("%d files of the core in %d folders"):format(#core, count))
