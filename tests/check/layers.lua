-- layers.lua - the folders of the core depend on each other in one direction: a file includes
-- headers, and uses functions, only of its own folder and of earlier folders. Code outside the core
-- includes only loam.h, and each foreign header is included in one place.
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

-- Headers that only one place in the core may include: patterns of the files that may include them.
local places = {
  ["lua.h"] = "^luajit$", ["lauxlib.h"] = "^luajit$", ["lualib.h"] = "^luajit$",
  ["luajit.h"] = "^luajit$",
  ['"script/luajit.h"'] = "^vm$ ^core_module$ ^luajit_linked$ ^script$ ^native$ ^command$",
  ["sys/mman.h"] = "^sys_linux$ ^sys_file$ ^sys_evict$",
  ["sys/syscall.h"] = "^sys_linux$", ["numaif.h"] = "^sys_linux$",
  ["linux/mempolicy.h"] = "^sys_linux$", ["linux/membarrier.h"] = "^sys_linux$",
  ["sys/inotify.h"] = "^watch$", ["sys/uio.h"] = "^remote$",
  ["sys/un.h"] = "^control_socket$ ^control_client$ ^listen$",
  ["dlfcn.h"] =
    "^luajit$ ^gpu_cuda_find$ ^manager$ ^unwind$ ^python_frames$ ^numa_string$ ^thread$",
  ["unwind.h"] = "^unwind$",
  ["link.h"] = "^unwind$ ^luajit$", ["cuda.h"] = "^gpu_cuda$",
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
    elseif of > rank[folder] then
      files.complain(where, '"%s" is of a later folder', header)
    end
  end)
end

-- Returns a list of the symbols that each object file of the build defines or uses: { file = , name
-- = , defines = }.
local function read_symbols(build)
  local command = ("find %s/core/CMakeFiles -name '*.c.o' -exec nm -A -f posix {} +"):format(build)
  local symbols = {}
  for _, line in ipairs(files.lines_of(command)) do
    local file, name, kind = line:match("([%w_]+/[%w_]+)%.c%.o: (%S+) (%a)")
    local folder = file and file:match("^[%w_]+")
    if file and rank[folder] and (kind == "U" or kind:find("^[A-Z]$")) then
      symbols[#symbols + 1] = { file = file, folder = folder, name = name, defines = kind ~= "U" }
    end
  end
  return symbols
end

local function check_calls(symbols)
  local home = {}
  for _, symbol in ipairs(symbols) do
    if symbol.defines then home[symbol.name] = symbol end
  end
  for _, symbol in ipairs(symbols) do
    local defined = home[symbol.name]
    if not symbol.defines and defined and rank[defined.folder] > rank[symbol.folder] then
      files.complain("core/" .. symbol.file .. ".c", "uses %s of the later %s.c", symbol.name,
        defined.file)
    end
  end
end

-- Outside the core a file may include loam.h, headers beside it, and the system's headers.
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
local symbols = read_symbols(assert(os.getenv("LOAM_BUILD"), "LOAM_BUILD names the build folder"))
if #symbols < 1000 then files.complain("core", "the build has only %d symbols", #symbols) end
check_calls(symbols)
files.finish(("%d files of the core in %d folders"):format(#core, count))
