-- refused.lua - the policy that later gets an error at line 8, which the manual shows.
local MiB = loam.MiB
local scratch = loam.host { name = "scratch" }
local tensors = loam.host { name = "tensors", align = 64 }
return loam.policy {
  name = "production",
  pick = function(req)
    if req.tag:under("tensor") and req.size >= 4 * MiB then return tensors:or_else(scratch) end
    return scratch
  end,
}
