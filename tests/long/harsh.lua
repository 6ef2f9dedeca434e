-- harsh.lua - gives memory that differs as much as possible from an ordinary malloc's, for programs
-- that must not notice it. A tenth of the middle sizes ends at a guard page, blocks have alignments
-- from 64 bytes to 2 MiB, large blocks lie on huge pages, nodes take turns, and limits are far
-- away.

local KiB, MiB, GiB = loam.KiB, loam.MiB, loam.GiB

local far = 64 * GiB
local small   = loam.host { name = "small", align = 64, limit = far }
local guarded = loam.host { name = "guarded", guard = 10, limit = far }
local spread  = loam.host { name = "spread", align = 4 * KiB, numa = "interleave", limit = far }
local huge    = loam.host { name = "huge", align = 2 * MiB, huge = "thp", limit = far }
local rest    = loam.host { name = "rest" }

return loam.policy {
  name = "harsh",
  pick = function(req)
    if req.size >= 1 * MiB then return huge:or_else(rest) end
    if req.size >= 16 * KiB then return spread:or_else(rest) end
    if req.size >= 100 and req.size < 2000 then return guarded:or_else(rest) end
    return small:or_else(rest)
  end,
  tests = {
    { tag = "malloc.any", size = 8,        expect = small },
    { tag = "malloc.any", size = 1000,     expect = guarded },
    { tag = "malloc.any", size = 20 * KiB, expect = spread },
    { tag = "malloc.any", size = 3 * MiB,  expect = huge },
  },
}
