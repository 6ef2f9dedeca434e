-- order.lua - in each library, the code that a process seldom needs stands together, behind what
-- core/os/order.ld names: core/os/cold_code.h gives back the pages between its two ends. And what
-- is named there is a function of the file that it is said to be in.
package.path = "tests/check/?.lua;" .. package.path
local files = require("_files")

local build = assert(os.getenv("LOAM_BUILD"), "LOAM_BUILD names the build folder")

local list = "core/os/order.ld"
local again = "run tests/bench/order"

local function text_of(file)
  local f = io.open("core/" .. file) or io.open("bindings/" .. file)
  if not f then return nil end
  local text = f:read("*a")
  f:close()
  return text
end

local named = 0
local f = assert(io.open(list))
for file, functions in f:read("*a"):gmatch("%*([%w_]+/[%w_]+%.c)%.o(%b())") do
  local text = text_of(file)
  if not text then files.complain(list, "there is no %s: %s", file, again) end
  for name in functions:gmatch("%.text%.([%w_]+)[ )]") do
    named = named + 1
    if text and not text:find("%f[%w_]" .. name .. "%f[^%w_]") then
      files.complain(list, "there is no %s in %s: %s", name, file, again)
    end
  end
end
f:close()
if named < 100 then files.complain(list, "it names %d functions: %s", named, again) end

local serving = { "loam_malloc", "loam_free", "lm_tcache_take", "lm_central_pull", "lm_large_free" }
local seldom = { "lm_plan_text_read", "lm_rebalance_begin", "lm_json_text", "loam_array_new" }

local function addresses(product)
  local at = {}
  local command = ("nm --defined-only -f posix %s/%s"):format(build, product)
  for _, line in ipairs(files.lines_of(command)) do
    local name, place = line:match("^(%S+) [tT] (%x+)")
    if name then at[name] = tonumber(place, 16) end
  end
  return at
end

for _, product in ipairs({ "libloam.so", "libloam-preload.so" }) do
  local at = addresses(product)
  local first, last = at.lm_cold_code_begin, at.lm_cold_code_end
  local function expect(name, holds, words)
    if not at[name] then files.complain(product, "%s is not there", name)
    elseif not holds(at[name]) then files.complain(product, "%s is %s", name, words) end
  end
  for _, name in ipairs(serving) do
    expect(name, function(place) return place < first end, "among what is seldom needed")
  end
  for _, name in ipairs(seldom) do
    expect(name, function(place) return first < place and place < last end,
      "not among what is seldom needed")
  end
end
files.finish("two libraries, in order")
