-- order.lua - in the preload library the functions of cmake/order.txt are in front of those that
-- few programs run, and most of the names there are names of functions. In a release build, the
-- functions of a start end within two windows of 64 KiB. cmake/order.cmake says why.
package.path = "tests/check/?.lua;" .. package.path
local files = require("_files")

local build = assert(os.getenv("LOAM_BUILD"), "LOAM_BUILD names the build folder")
local product = "libloam-preload.so"
local script = io.open(build .. "/core/order.ld")
if not script then
  io.stdout:write("skipped: this linker does not order functions\n")
  os.exit(77)
end
script:close()

local seldom = [[lm_board_clean lm_sample_take lm_walk_each
  loam_array_new loam_block_stats]]

local at = {}
local command = ("nm --defined-only -f posix %s/%s"):format(build, product)
for _, line in ipairs(files.lines_of(command)) do
  local name, address = line:match("^(%S+) [Tt] (%x+)")
  if name then at[name] = tonumber(address, 16) end
end

-- Calls visit(name, address or nil) for each name; returns the count of names.
local function each_name(names, visit)
  local count = 0
  for name in names:gmatch("%S+") do
    count = count + 1
    visit(name, at[name])
  end
  return count
end

local first = { at = math.huge }
each_name(seldom, function(name, address)
  if not address then files.complain(product, "%s is not there", name)
  elseif address < first.at then first = { name = name, at = address } end
end)

-- A compiler leaves out functions that it puts into their callers.
local missing = {}
local common = files.read("cmake/order.txt"):gsub("#[^\n]*", "")
local count = each_name(common, function(name, address)
  if not address then missing[#missing + 1] = name
  elseif address > first.at then files.complain(product, "%s is behind %s", name, first.name) end
end)
if #missing > count / 4 then
  files.complain("cmake/order.txt", "these are not in the library, so run tests/bench/order: %s",
    table.concat(missing, " "))
end

-- The first paragraph of the file has the functions of a start.
local WINDOWS_END = 0x20000
local is_release = files.read(build .. "/CMakeCache.txt"):find("CMAKE_BUILD_TYPE:%w+=Release\n")
each_name(is_release and common:match("^\n*(.-)\n\n") or "", function(name, address)
  if address and address >= WINDOWS_END then
    files.complain(product, "%s, which each start runs, is at %#x, behind two windows of 64 KiB",
      name, address)
  end
end)
files.finish("the library's code, in order")
