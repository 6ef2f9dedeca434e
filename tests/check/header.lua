-- header.lua - C99, C++11 and LuaJIT's ffi.cdef accept loam.h without a change, and the macros too
-- give none of the warnings that hosts turn on.
package.path = "tests/check/?.lua;" .. package.path
local files = require("_files")
local header = require("_header")
local ffi = require("ffi")

local build = assert(os.getenv("LOAM_BUILD"), "LOAM_BUILD names the build folder")
local cc, cxx = os.getenv("CC") or "cc", os.getenv("CXX") or "c++"

local program = [[
#include <loam.h>
void use(void);
void use(void) {
  const loam_index at[] = { LOAM_AT(1), LOAM_RANGE(0, 2), LOAM_ALL };
  loam_free(loam_malloc(LOAM_SITE("tag"), sizeof at));
}
]]
local warnings = "-Wall -Wextra -Werror -Wpedantic -Wconversion -Wshadow"

-- Compiles the header and its macros. Each warning is an error.
local function compile(compiler, language)
  local line = "echo '%s' | %s -fsyntax-only %s -Icore/include %s - 2>&1"
  local ok, words = pcall(files.lines_of, line:format(program, compiler, warnings, language))
  if not ok then files.complain("core/include/loam.h", "%s %s\n%s", compiler, language, words) end
end

compile(cc, "-std=c99 -x c")
compile(cc, "-std=gnu17 -x c")
compile(cxx, "-std=c++11 -Wzero-as-null-pointer-constant -Wold-style-cast -x c++")
compile(cxx, "-std=c++20 -Wzero-as-null-pointer-constant -Wold-style-cast -x c++")

-- A scope without a name ends at once, and the compiler says so.
local unnamed = ("echo '#include <loam.hpp>\nvoid use() { loam::scope(\"tag\"); }' | %s "
  .. "-std=c++17 -x c++ -fsyntax-only -Icore/include -Ibindings/cxx - 2>&1"):format(cxx)
if not table.concat(files.lines_of(unnamed), " "):find("nodiscard", 1, true) then
  files.complain("bindings/cxx/loam.hpp", "no warning of a scope without a name")
end

for _, name in ipairs { "cdef", "plan_cdef" } do
  local text = dofile(("%s/embed/loam/%s.lua"):format(build, name))
  local ok, words = pcall(ffi.cdef, text)
  if not ok then files.complain(name, "ffi.cdef: %s", words) end
end

-- FFI knows the type of each declared function, and the library defines it.
local library = ffi.load(build .. "/libloam.so")
local count = 0
for name in pairs(header.functions()) do
  count = count + 1
  local ok, words = pcall(function() return library[name] end)
  if not ok then files.complain(name, "%s", words) end
end
files.finish(("%d functions, by C, C++ and FFI"):format(count))
