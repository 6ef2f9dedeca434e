-- explain_spec.lua - the questions of `loam explain` about the free memory of nodes and devices.

local command = require("loam.command")
local canned_context = require("canned_context")

local run = canned_context.run

local ANSWER = {
  verb = "explain", version = 1, policy = "p.lua", ok = true, tag = "a", size = 8,
  strategy = { name = "big", kind = "host" }, chain = { "big" }, line = 10, path = {},
}

describe("loam explain", function()
  it("asks with the free memory that it was given", function()
    local _, context = run("explain p.lua --tag a --size 8 --node-free 0=1G --node-free 12=0"
      .. " --device-free=1=4K", { explain = ANSWER })
    assert.equal("verb explain\ntag a\nsize 8\nnodefree 0 1073741824\nnodefree 12 0\n"
      .. "devicefree 1 4096", context.queries[1])
  end)

  it("asks about a tag and a file of several lines", function()
    local context = canned_context.new { explain = ANSWER }
    local args = { "explain", "p.lua", "--tag", "malloc.x\ny", "--size", "8", "--file", "a\nb" }
    assert.equal(0, command.main(args, context))
    assert.equal("verb explain\nhex tag h6d616c6c6f632e780a79\nsize 8\nhex file h610a62",
      context.queries[1])
    args = { "demote", "42", "--to", "s", "--tag", "x\ny" }
    assert.equal(2, command.main(args, context)) -- a request to a program is one line
  end)

  it("refuses free memory that names no node or no size", function()
    for _, value in ipairs { "1", "64=1", "=1", "0=", "-1=5", "0=x", "a=1", "100=1" } do
      local status, context = run("explain p.lua --tag a --size 8 --node-free " .. value,
        { explain = ANSWER })
      assert.equal(2, status)
      assert.matches("--node-free: ", context.err, 1, true)
    end
  end)
end)
