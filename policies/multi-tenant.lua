-- multi-tenant.lua: memory and a limit for each tenant, so that no tenant takes another one's
-- share.
--
-- The host tags its work for a tenant "tenant.NAME.…". The blocks of a tenant come from a strategy
-- of its own: its pages hold no data of others, `loam stats` shows its bytes in a row, and its
-- limit is exact. All tenants that are not listed share one small limit. To add a tenant, add a
-- line to `limits` while the host runs.
--
-- Costs: one pool for each tenant that allocates, and the count that a limit needs.

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
