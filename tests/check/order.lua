-- order.lua - in each product, the code that a process seldom needs stands together, behind what
-- serves requests: core/seldom.h gives back the pages between its two ends.
package.path = "tests/check/?.lua;" .. package.path
local files = require("_files")

local build = assert(os.getenv("LOAM_BUILD"), "LOAM_BUILD names the build folder")

local serving = { "loam_malloc", "loam_free", "lm_engine_free", "lm_store_pull", "lm_large_alloc",
  "lm_control_start" }
local seldom = { "lm_carry_read", "lm_control_dir", "lm_json_text", "loam_array_new" }

local function addresses(product)
  local at = {}
  local command = ("nm --defined-only -f posix %s/%s"):format(build, product)
  for _, line in ipairs(files.lines_of(command)) do
    local name, place = line:match("^(%S+) [tT] (%x+)")
    if name then at[name] = tonumber(place, 16) end
  end
  return at
end

for _, product in ipairs({ "libloam.so", "libloam-preload.so", "loam" }) do
  local at = addresses(product)
  local first, last = at.lm_seldom_rest, at.lm_seldom_end
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
files.finish("three products, in order")
