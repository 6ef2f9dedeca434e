-- moved.lua - gives all memory of prod.lua another strategy.
local plain = loam.host { name = "plain", align = 32 }

return loam.policy { name = "moved", pick = function() return plain end }
