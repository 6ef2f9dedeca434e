-- low-latency.lua: memory that never faults, for the threads that must not wait.
--
-- Blocks under "hot" come from memory that is touched when it is taken from the system and locked
-- there, on the node of the thread that asks. Under memory pressure on that node (less than 1 GiB
-- free) large blocks that are not hot go wherever there is room, so that hot ones stay near.
--
-- Costs: locked memory counts against `ulimit -l` (without the right to it, hot blocks fall back
-- to ordinary memory; `loam stats` counts that). A plan that asks for a node's free memory looks
-- at it, at most 100 ms old, for each request of 1 MiB or more.

local MiB, GiB = loam.MiB, loam.GiB

local hot    = loam.host { name = "hot", numa = "local", prefault = true, lock = true }
local near   = loam.host { name = "near", numa = "local" }
local spread = loam.host { name = "spread", numa = "interleave" }

return loam.policy {
  name = "low-latency",
  pick = function(req)
    if req.tag:under("hot") then return hot:or_else(near) end
    if req.size >= 1 * MiB and loam.node(0).free < 1 * GiB then return spread end
    return near
  end,
  tests = {
    { tag = "hot.orders", size = 256,     expect = hot },
    { tag = "report",     size = 256,     expect = near },
  },
  always = {
    ["only hot blocks are locked"] = function(req, got)
      return not got.lock or req.tag:under("hot")
    end,
  },
}
