-- gpu-shared.lua: one GPU for several models; no model can take the memory of the others.
--
-- The tensors of each model come from a strategy with a limit. Memory over the limit is managed
-- memory, and so are large tensors while a device has less than 2 GiB free: managed memory is
-- slower, but no request is refused. Buffers that only the device reads are write-combined. Without
-- a GPU, all memory is ordinary memory of the host.
--
-- Costs: a strategy with a limit keeps an exact count of its bytes. A thread reads the free memory
-- of the device ten times a second.

local GiB = loam.GiB

local host    = loam.host { name = "host" }
local spill   = loam.managed { name = "spill" }:or_else(host)
local search  = loam.device { name = "search", limit = 8 * GiB }:or_else(spill)
local ranking = loam.device { name = "ranking", limit = 24 * GiB }:or_else(spill)
local feed    = loam.pinned { name = "feed", mapped = true, write_combined = true }:or_else(host)

-- Returns true if some device is short of memory.
local function is_tight()
  for _, n in ipairs(loam.devices()) do
    if loam.device(n).free < 2 * GiB then return true end
  end
  return false
end

return loam.policy {
  name = "gpu-shared",
  pick = function(req)
    if req.tag:under("feed") then return feed end
    if not req.tag:under("search") and not req.tag:under("ranking") then return host end
    if req.size >= 64 * loam.MiB and is_tight() then return spill end
    return req.tag:under("search") and search or ranking
  end,
  tests = {
    { tag = "search.index",    size = 4096,      expect = search },
    { tag = "search.rows",     size = 1 * GiB,   expect = search, device_free = { [0] = 9 * GiB } },
    { tag = "ranking.weights", size = 1024,      expect = ranking },
    { tag = "feed.images",     size = 1 * GiB,   expect = feed },
    { tag = "log",             size = 100,       expect = host },
  },
  always = {
    ["a model has memory of its own, or spills"] = function(req, got)
      return got.kind ~= "device" or req.tag:under(got.name)
    end,
  },
}
