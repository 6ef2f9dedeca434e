local MiB = loam.MiB
local small = loam.host { name = "small", align = 64 }
local big = loam.host { name = "big", align = 4096, limit = 1024 * MiB }
local no = loam.deny { name = "no" }
return loam.policy { name = "good", pick = function(req)
  if req.tag:under("tensor") and req.size >= 4 * MiB then return big:or_else(small) end
  if req.tag == "cache\n\"x|y'\255" and req.zero then return big end
  if req.size + req.live > 100 then return small end
  if req.size * req.live % 3 == 1 then return no end
  return small:or_else(big)
end }
