-- eight_leaves.lua: the policy of loam while tests/bench/allocators runs. It has eight leaves and
-- three strategies, none of which asks for more than the other allocators give.

local KiB, MiB = loam.KiB, loam.MiB

local small  = loam.host { name = "small" }
local middle = loam.host { name = "middle" }
local large  = loam.host { name = "large" }

return loam.policy {
  name = "eight",
  pick = function(req)
    if req.size <= 256 then return small:or_else(middle) end
    if req.size <= 1 * KiB then return small:or_else(large) end
    if req.size <= 8 * KiB then return middle:or_else(small) end
    if req.size <= 64 * KiB then return middle:or_else(large) end
    if req.size <= 1 * MiB then return large:or_else(middle) end
    if req.size <= 16 * MiB then return large:or_else(small) end
    if req.size <= 64 * MiB then return large:or_else(small):or_else(middle) end
    return large
  end,
}
