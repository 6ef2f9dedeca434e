-- exports.lua - each library exports the functions that loam.h declares, and nothing else of loam.
-- The command exports nothing. No library contains code that only the command runs.
package.path = "tests/check/?.lua;" .. package.path
local files = require("_files")
local header = require("_header")

local build = assert(os.getenv("LOAM_BUILD"), "LOAM_BUILD names the build folder")

-- The functions that the preload library replaces: the malloc family; jemalloc's additions to it;
-- C++'s operators, which begin with _Zn and _Zd; dlclose, after which a return address may belong
-- to another module; dlopen and dlmopen, which it calls without RTLD_DEEPBIND; setrlimit and
-- prlimit, of which loam has to know; mlockall; and madvise.
local malloc_family = {}
for name in ([[malloc free calloc realloc reallocarray memalign posix_memalign aligned_alloc valloc
               pvalloc malloc_usable_size malloc_trim mallinfo mallinfo2 malloc_stats malloc_info
               free_sized free_aligned_sized mallocx rallocx xallocx sallocx dallocx
               sdallocx nallocx dlopen dlmopen dlclose mlockall madvise
               setrlimit setrlimit64 prlimit prlimit64]]):gmatch("%S+") do
  malloc_family[name] = true
end

local function is_malloc(name) return malloc_family[name] or name:find("^_Z[nd][wal]") ~= nil end

-- Returns the set of names that nm lists as defined, without their versions.
local function defined(options, product)
  local set = {}
  local command = ("nm %s --defined-only -f posix %s/%s"):format(options, build, product)
  for _, line in ipairs(files.lines_of(command)) do
    local name = line:match("^(%S+) %a ")
    if name then set[name:gsub("@.*", "")] = true end
  end
  return set
end

-- Returns the names that other programs can find in a product. Leaves out hidden names, which some
-- linkers list as well.
local function exported(product)
  local set, hidden = defined("-D", product), {}
  for _, line in ipairs(files.lines_of(("readelf --dyn-syms -W %s/%s"):format(build, product))) do
    local name = line:match(" HIDDEN +%w+ (%S+)")
    if name then hidden[name:gsub("@.*", "")] = true end
  end
  for name in pairs(hidden) do set[name] = nil end
  return set
end

-- Checks that `names` has every function of loam.h, and that `may_be` allows every other name.
local function check(product, names, may_be)
  local functions = header.functions()
  for name in pairs(functions) do
    if not names[name] then files.complain(product, "%s is declared, not defined", name) end
  end
  for name in pairs(names) do
    if not functions[name] and not may_be(name) then
      files.complain(product, "%s is defined, not declared", name)
    end
  end
end

-- Checks that a product has no code of the command: its Lua modules, and the C code that opens
-- them, contain this name as a string.
local function check_has_no_command(product)
  if files.read(build .. "/" .. product):find("loam.command", 1, true) then
    files.complain(product, "holds code of the loam command: cmake/embed.cmake keeps the two apart")
  end
end

local function nothing() return false end
-- sys/sdt.h defines the second name, weak and hidden, in each object file with a probe.
local function internal(name) return name:find("^lm_") ~= nil or name == "_.stapsdt.base" end
check("libloam.so", exported("libloam.so"), nothing)
check("libloam.a", defined("-g", "libloam.a"), internal)
check("libloam-preload.so", exported("libloam-preload.so"), is_malloc)
for _, product in ipairs { "libloam.so", "libloam.a", "libloam-preload.so" } do
  check_has_no_command(product)
end
for name in pairs(exported("loam")) do
  if name:find("^loam_") or internal(name) then files.complain("loam", "%s is exported", name) end
end
files.finish("three libraries export what loam.h declares and hold no code of the command")
