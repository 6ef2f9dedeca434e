-- gpu-shared.lua: one GPU for several models, none of which may crowd out the others.
--
-- Each model's tensors come from a strategy with a limit. What goes past it, and what comes while
-- the device has less than 2 GiB free, is managed memory: slower, never refused. Buffers that only
-- the device reads are write-combined. Without a GPU, all of it is memory of the host.
--
-- Costs: a strategy with a limit keeps an exact count of its bytes; what is free on the device is
-- read ten times a second by a thread of its own.

local GiB = loam.GiB

local host    = loam.host { name = "host" }
local spill   = loam.managed { name = "spill" }:or_else(host)
local search  = loam.device { name = "search", limit = 8 * GiB }:or_else(spill)
local ranking = loam.device { name = "ranking", limit = 24 * GiB }:or_else(spill)
local feed    = loam.pinned { name = "feed", mapped = true, write_combined = true }:or_else(host)

-- Whether any device is short of memory.
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
