-- ps_spec.lua - what `loam ps` says of boards that it has not read.

local run = require("canned_context").run

describe("loam ps", function()
  it("names the users of whose boards some are left out", function()
    local left = { left_out = "/tmp/loam-1000\27", uid = 1000 }
    local line = "loam ps: /tmp/loam-1000\\027: user 1000 has more boards than are read of one "
      .. "user; some programs of this user are not listed\n"
    local living = '{"pid":42,"program":"python3","state":"running","generation":1}'
    local status, context = run("ps", { boards = { left, living } })
    assert.equal(0, status)
    assert.equal(line, context.err)
    assert.matches(" 42  python3", context.out, 1, true)
    assert.equal(line, select(2, run("ps", { boards = { left } })).err)
  end)
end)
