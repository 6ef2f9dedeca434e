-- next.lua - an edit of prod.lua: less for caches, and no scratch memory of 1 GiB and more.
local GiB, MiB = loam.GiB, loam.MiB
local plain = loam.host { name = "plain" }
local arrays = loam.host { name = "arrays", align = 64 }
local caches = loam.host { name = "caches", limit = 512 * MiB }
local refused = loam.deny { name = "refused" }

return loam.policy {
  name = "production",
  pick = function(req)
    if req.tag:is("scratch.refused") then return refused end
    if req.tag:under("scratch") and req.size >= 1 * GiB then return refused end
    if req.tag:under("cache") then return caches:or_else(plain) end
    if req.tag:under("malloc._multiarray_umath") and req.size >= 4 * MiB then
      return arrays:or_else(plain)
    end
    return plain
  end,
}
