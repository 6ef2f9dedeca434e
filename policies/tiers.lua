-- tiers.lua: fast memory until it is 80% full, then the nodes without CPUs (CXL, for example).
--
-- For machines whose slow memory is a node of its own. A large block goes to the fast nodes while
-- they have a fifth free; then to the slow ones while those have some, or anywhere. Nothing fails
-- for want of fast memory. With apply = "live" a reload moves what lives by the same rule, so the
-- fast nodes are left a fifth free; `loam demote PID --tag cache` makes room by hand.
--
-- Costs: for requests from 64 KiB on some 7 ns, with up to three fast nodes (with more of them 30
-- to 80); free memory is at most 100 ms old, so a program that allocates tens of GiB a second may
-- fill more than it says.

local MiB = loam.MiB
local SPARE = 0.2 -- of each fast node, left free

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
  apply = "new", -- "live": what lives moves as well
  pick = function(req)
    if req.size < 64 * loam.KiB then return small end
    local free = 0
    for _, n in ipairs(fast_nodes) do free = free + loam.node(n).free end
    if free - req.size > SPARE * total then return fast:or_else(slow, small) end
    return slow:or_else(fast, small)
  end,
  tests = {
    { tag = "row", size = 100, expect = small },
    { tag = "table", size = 4 * MiB, node_free = {}, expect = slow },
  },
}
