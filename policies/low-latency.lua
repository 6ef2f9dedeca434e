-- low-latency.lua: memory without page faults, for threads that must not wait.
--
-- Memory for tags under "hot" is touched and locked when loam takes it from the system, on the node
-- of the thread that allocates. While node 0 has less than 1 GiB free, large blocks of other tags
-- are spread over all nodes, so that node 0 keeps room for hot blocks.
--
-- Set LOAM_KEEP=1 too: without it, hot memory that lies idle goes back and is prepared again. What
-- else a thread may wait for is in latency.md.
--
-- Costs: locked memory counts against `ulimit -l`. Where locking is refused, hot blocks fall back
-- to ordinary memory, and `loam stats` counts them. For each request of 1 MiB or more loam reads
-- the free memory of the node, a figure that is at most 100 ms old.

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
