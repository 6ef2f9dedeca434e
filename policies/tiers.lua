-- tiers.lua: fast memory until it is 80% full, then the nodes without CPUs (CXL, for example).
--
-- This policy is for machines whose slow memory is a NUMA node of its own. A large block goes to
-- the fast nodes while a fifth of their memory is free, and after that to the slow nodes while
-- these have room. If the chosen nodes are full, the other nodes serve, so that no request fails.
-- With apply = "live" a reload also moves live memory by this rule, which leaves a fifth of the
-- fast nodes free; `loam demote PID --tag cache` makes room on command.
--
-- Costs: about 20 ns for each request of 64 KiB or more on a machine with one fast node, and more
-- with each further one. Figures of free memory are at most 100 ms old: a program that allocates
-- tens of GiB a second may use more than they allow.

local MiB = loam.MiB
local SPARE = 0.2 -- the part of the fast nodes' memory that stays free

local fast_nodes, slow_nodes, total = {}, {}, 0
for _, n in ipairs(loam.nodes()) do
  local list = loam.node(n).cpus and fast_nodes or slow_nodes
  list[#list + 1] = n
  if loam.node(n).cpus then total = total + loam.node(n).total end
end
if #slow_nodes == 0 then slow_nodes = fast_nodes end -- a machine of one tier

local small = loam.host { name = "small" }
local fast = loam.host { name = "fast", numa = fast_nodes }
local slow = loam.host { name = "slow", numa = slow_nodes, huge = "thp" }

return loam.policy {
  name = "tiers",
  apply = "new", -- write "live" to move live memory as well at each reload
  pick = function(req)
    if req.size < 64 * loam.KiB then return small end
    local free = 0
    for _, n in ipairs(fast_nodes) do free = free + loam.node(n).free end
    if free - req.size > SPARE * total then return fast:or_else(slow):or_else(small) end
    return slow:or_else(fast):or_else(small)
  end,
  tests = {
    { tag = "row", size = 100, expect = small },
    { tag = "table", size = 4 * MiB, node_free = {}, expect = slow },
  },
}
