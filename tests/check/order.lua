-- order.lua - in the preload library the code that most programs run lies before the code that few
-- programs run. core/CMakeLists.txt gives the reason.
package.path = "tests/check/?.lua;" .. package.path
local files = require("_files")

local build = assert(os.getenv("LOAM_BUILD"), "LOAM_BUILD names the build folder")
local product = "libloam-preload.so"

-- A start, or a malloc and free, runs these functions. pthread_atfork comes from the C library. The
-- files of the functions from lm_board_boot_id on contain little other code that runs.
local common = [[malloc free loam_free lm_central_pull lm_policy_file_read lm_handler_set_system
  pthread_atfork lm_board_boot_id lm_control_dir lm_guard_fault_install lm_large_init
  lm_last_words_start lm_policy_open_text lm_pool_start lm_sample_stock lm_tails_learn
  loam_site_at]]
local seldom = [[lm_board_clean lm_large_free lm_sample_take lm_walk_each
  loam_array_new loam_block_stats]]

local at = {}
local command = ("nm --defined-only -f posix %s/%s"):format(build, product)
for _, line in ipairs(files.lines_of(command)) do
  local name, address = line:match("^(%S+) [Tt] (%x+)")
  if name then at[name] = tonumber(address, 16) end
end

local function addresses_of(names)
  local found = {}
  for name in names:gmatch("%S+") do
    if at[name] then found[#found + 1] = { name = name, at = at[name] }
    else files.complain(product, "%s is not there", name) end
  end
  table.sort(found, function(a, b) return a.at < b.at end)
  return found
end

local first_seldom = addresses_of(seldom)[1]
for _, f in ipairs(addresses_of(common)) do
  if first_seldom and f.at > first_seldom.at then
    files.complain(product, "%s is behind %s", f.name, first_seldom.name)
  end
end
files.finish("the library's code, in order")
