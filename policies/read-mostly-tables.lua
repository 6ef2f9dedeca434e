-- read-mostly-tables.lua: tables that every thread reads, spread over all NUMA nodes.
--
-- This policy is for lookup tables, indexes and model weights that are written once and read from
-- every socket. Interleaving gives each reader the same mean distance, and uses the bandwidth of
-- all nodes. All other memory is on the node of the thread that allocates it.
--
-- Costs: a single thread that reads from one node has remote latency for (nodes - 1) / nodes of its
-- reads. On a machine with one node the policy only asks for huge pages.

local MiB = loam.MiB

local spread = loam.host { name = "spread", numa = "interleave", huge = "thp" }
local here   = loam.host { name = "here", numa = "local" }

local read_mostly = { table = true, index = true, weights = true, dictionary = true }

return loam.policy {
  name = "read-mostly-tables",
  pick = function(req)
    if read_mostly[req.tag:part(1)] and req.size >= 1 * MiB then
      return spread:or_else(here)
    end
    return here
  end,
  tests = {
    { tag = "index.users",   size = 16 * MiB, expect = spread },
    { tag = "index.users",   size = 512,      expect = here },
    { tag = "request.parse", size = 16 * MiB, expect = here },
  },
  always = {
    ["small blocks are never spread"] = function(req, got)
      return req.size >= 64 * 1024 or got.numa ~= "interleave"
    end,
  },
}
