-- limit-caches.lua: a limit for caches; a request over the limit fails.
--
-- Blocks of tags under "cache" come from a strategy with a limit of 512 MiB, and over that from
-- another one with 64 MiB. After that the request is denied: it gets NULL, which a cache takes as a
-- sign to evict. Scratch memory has a limit as well, but over it the memory is ordinary, so that no
-- request fails.
--
-- Costs: a strategy with a limit counts its bytes when a thread takes or gives back a batch of
-- small blocks, and for each large block. The small blocks that threads keep for reuse count too.

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
