-- multi-tenant.lua: each tenant its own memory and its own limit; nobody takes the neighbour's.
--
-- The host tags what it does for a tenant "tenant.NAME.…". A tenant's blocks come from a strategy
-- of its own, so its pages hold nobody else's data, `loam stats` shows its bytes in a row, and
-- its limit is kept exactly. Tenants not listed share one small allowance. A new tenant is a line
-- in `limits`, added while the host runs.
--
-- Costs: one pool for each tenant that allocates, and the count that a limit keeps.

local MiB, GiB = loam.MiB, loam.GiB

local limits = {
  acme    = 2 * GiB,
  globex  = 1 * GiB,
  initech = 256 * MiB,
}

local full = loam.deny { name = "over-quota" }
local plain = loam.host { name = "plain" }
local guests = loam.host { name = "guests", limit = 64 * MiB }

local memory = {}
for tenant, limit in pairs(limits) do
  memory[tenant] = loam.host { name = tenant, limit = limit }:or_else(full)
end

return loam.policy {
  name = "multi-tenant",
  pick = function(req)
    if not req.tag:under("tenant") then return plain end
    return memory[req.tag:part(2)] or guests:or_else(full)
  end,
  tests = {
    { tag = "tenant.acme.session",  size = 4096,    expect = memory.acme },
    { tag = "tenant.umbrella.rows", size = 4096,    expect = guests },
    { tag = "server.listen",        size = 1 * MiB, expect = plain },
  },
  always = {
    ["tenants never use the server's own memory"] = function(req, got)
      return not req.tag:under("tenant") or got.name ~= "plain"
    end,
  },
}
