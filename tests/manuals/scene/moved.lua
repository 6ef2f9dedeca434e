-- moved.lua - another place for all memory of prod.lua.
local plain = loam.host { name = "plain", align = 32 }

return loam.policy { name = "moved", pick = function() return plain end }
