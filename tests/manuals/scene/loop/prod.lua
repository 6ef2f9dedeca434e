-- prod.lua - a policy that loam refuses: its loop depends on the request.
local function pick(req) for _ = 1, req.size do end end
return loam.policy { name = "loop", pick = pick }
