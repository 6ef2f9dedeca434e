-- metrics_listen_spec.lua - what `loam metrics --listen` says about its address.

local canned = require("canned_context")
local http = require("loam.command.metrics.http")

describe("loam metrics --listen", function()
  it("says where it listens: also that every address of the machine is served", function()
    local open, serve = http.open, http.serve
    http.open, http.serve = function() return {} end, function() end
    local function said(address)
      local context = canned.new {}
      context.posix.listen = function() return 3, 9464 end
      require("loam.command").main({ "metrics", "--listen", address }, context)
      return context.err
    end
    local one, v6, every = said("localhost:0"), said("[::1]:9464"), said(":9464")
    http.open, http.serve = open, serve
    assert.equal("loam metrics: serving http://localhost:9464/metrics\n", one)
    assert.equal("loam metrics: serving http://[::1]:9464/metrics\n", v6)
    assert.equal("loam metrics: every IPv4 address of this machine is served\n"
      .. "loam metrics: serving http://0.0.0.0:9464/metrics\n", every)
  end)
end)
