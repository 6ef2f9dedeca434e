"""compiled - arrays in code that Numba compiles, with memory that a policy chooses."""

import gc

import numba
import numpy as np
from numba.core.runtime import rtsys

import loam

loam.policy.load(name="example.lua", text="""
local plain = loam.host { name = "plain" }
local grids = loam.host { name = "grids", align = 64, huge = "thp" }
return loam.policy { name = "example", pick = function(req)
  if req.tag:is("solver.grid") then return grids:or_else(plain) end
  return plain
end }
""")

GRID = loam.numba.allocator("solver.grid")


@numba.njit
def relax(n, times):
    """Heat that spreads from one side of a plate."""
    now = loam.numba.empty((n, n), np.float64, GRID)
    now[:] = 0
    now[0, :] = 1
    for _ in range(times):
        then = loam.numba.empty((n, n), np.float64, GRID)
        then[:] = now
        then[1:-1, 1:-1] = (now[:-2, 1:-1] + now[2:, 1:-1] + now[1:-1, :-2] + now[1:-1, 2:]) / 4
        now = then
    return now


relax(3, 1)
before = rtsys.get_allocation_stats()
plate = relax(100, 50)
owner = loam.owner(plate)
print(f"warmth {plate.mean():.4f}, tag {owner.tag}, strategy {owner.strategy}")
print("on a cache line:", plate.ctypes.data % 64 == 0)

row = next(row for row in loam.stats(by="tag") if row["tag"] == "solver.grid")
print(f"grids made: {row['total_blocks']}, alive: {row['live_blocks']}")
del plate
gc.collect()
after = rtsys.get_allocation_stats()
print("Numba's run-time balances:", after.alloc - before.alloc == after.free - before.free)
