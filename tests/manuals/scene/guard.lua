-- guard.lua - all memory stands against a guard page.
local guarded = loam.host { name = "guarded", guard = true }

return loam.policy { name = "guard", pick = function() return guarded end }
