-- guarded.lua - guards all blocks, for `tests/long/glibc`.
local guarded = loam.host { name = "guarded", guard = true }
return loam.policy { name = "guarded", pick = function(req) return guarded end }
