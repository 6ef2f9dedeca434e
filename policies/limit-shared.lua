-- limit-shared.lua: one limit for all processes of a user, such as the workers of a service.
--
-- Blocks of tags under "kv" come from a strategy with a limit of 4 GiB. Every process of the user
-- that obeys a policy with a limit under this name draws from one quota, whichever `loam run`
-- started it. When a process ends, also by kill -9, its bytes go back to the quota. A process that
-- finds the quota full gets ordinary memory here, for requests below 1 MiB; a larger request is
-- denied.
--
-- Costs: a strategy with a shared limit counts its bytes twice, once for the process and once for
-- all processes, when a thread takes a batch of small blocks and for each large block. The small
-- blocks that threads keep for reuse count for all processes.

local MiB, GiB = loam.MiB, loam.GiB

local kv    = loam.host { name = "kv", limit = 4 * GiB, shared = "kv" }
local plain = loam.host { name = "plain" }
local no    = loam.deny { name = "kv-full" }

return loam.policy {
  name = "limit-shared",
  pick = function(req)
    if req.tag:under("kv") then
      if req.size >= 1 * MiB then return kv:or_else(no) end
      return kv:or_else(plain)
    end
    return plain
  end,
  tests = {
    { tag = "kv.pages", size = 4096,    expect = kv },
    { tag = "kv.blobs", size = 2 * MiB, expect = kv },
    { tag = "log",      size = 4096,    expect = plain },
  },
  always = {
    ["only the store counts against the shared limit"] = function(req, got)
      return got.shared == nil or req.tag:under("kv")
    end,
  },
}
