-- _header.lua - the names that loam.h declares.
local files = require("_files")

local header = {}

-- Returns the set of its functions: the names before the first parenthesis of a LOAM_API
-- declaration.
function header.functions()
  local text = files.read("core/include/loam.h"):gsub("/%*.-%*/", "")
  local set = {}
  for name in text:gmatch("\nLOAM_API [^;(]-([%w_]+)%(") do set[name] = true end
  return set
end

return header
