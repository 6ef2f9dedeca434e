-- small.lua - a strategy without guard pages.
local small = loam.host { name = "small" }

return loam.policy { name = "small", pick = function() return small end }
