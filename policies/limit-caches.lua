-- limit-caches.lua: caches may not eat the machine; what they ask beyond their share fails.
--
-- Blocks of the tags under "cache" come from a strategy of 512 MiB; what goes past that comes from
-- an overflow of 64 MiB; then the request is denied (NULL), which a cache takes as "evict first".
-- Scratch memory has a limit too, but falls back to ordinary memory: slower, never refused.
--
-- Costs: strategies with a limit keep an exact count of their bytes, an atomic addition for each
-- block made and freed. Tags without a limit pay nothing.

local MiB = loam.MiB

local cache    = loam.host { name = "cache", limit = 512 * MiB }
local overflow = loam.host { name = "cache-overflow", limit = 64 * MiB }
local scratch  = loam.host { name = "scratch", limit = 256 * MiB, huge = "thp" }
local plain    = loam.host { name = "plain" }
local no       = loam.deny { name = "cache-full" }

return loam.policy {
  name = "limit-caches",
  pick = function(req)
    if req.tag:under("cache") then
      return cache:or_else(overflow):or_else(no)
    elseif req.tag:under("scratch") and req.size >= 1 * MiB then
      return scratch:or_else(plain)
    end
    return plain
  end,
  tests = {
    { tag = "cache.pages",  size = 4096,     expect = cache },
    { tag = "scratch.sort", size = 32 * MiB, expect = scratch },
    { tag = "scratch.sort", size = 100,      expect = plain },
    { tag = "cachet",       size = 4096,     expect = plain },
  },
  always = {
    ["only caches can be denied"] = function(req, got)
      return got.kind ~= "deny" or req.tag:under("cache")
    end,
  },
}
