-- guard.lua - puts all blocks against guard pages.
local guarded = loam.host { name = "guarded", guard = true }

return loam.policy { name = "guard", pick = function() return guarded end }
