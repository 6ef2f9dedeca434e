-- prod.lua - a policy for the ranks of a parallel job: the table is in memory that the ranks of a
-- machine share, the cells of each rank are in memory of the NUMA node where the rank runs.

local MiB = loam.MiB

local shared = loam.shared { name = "table" }
local cells  = loam.host { name = "cells", numa = "local", huge = "thp", limit = 512 * MiB }
local rest   = loam.host { name = "rest" }

return loam.policy {
  name = "mpi",
  pick = function(req)
    if req.tag:is("table.entries") then return shared:or_else(rest) end
    if req.size >= 1 * MiB then return cells:or_else(rest) end
    return rest
  end,
  tests = {
    { tag = "table.entries", size = 8 * MiB, expect = shared },
    { tag = "rank.cells", size = 1 * MiB, expect = cells },
    { tag = "malloc.any", size = 100, expect = rest },
  },
}
