-- prod.lua - the policy of the manuals, before its edit.
local GiB, MiB = loam.GiB, loam.MiB
local plain = loam.host { name = "plain" }
local arrays = loam.host { name = "arrays", align = 64 }
local caches = loam.host { name = "caches", limit = 1 * GiB }
local refused = loam.deny { name = "refused" }

return loam.policy {
  name = "production",
  pick = function(req)
    if req.tag:is("scratch.refused") then return refused end
    if req.tag:under("cache") then return caches:or_else(plain) end
    if req.tag:under("malloc._multiarray_umath") and req.size >= 4 * MiB then
      return arrays:or_else(plain)
    end
    return plain
  end,
}
