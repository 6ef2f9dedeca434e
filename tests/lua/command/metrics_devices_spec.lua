-- metrics_devices_spec.lua - the series of `loam metrics` about the memory of devices.

local run = require("canned_context").run

describe("loam metrics", function()
  it("tells what the pools of each device have", function()
    local status, context = run("metrics", {
      boards = { { pid = 42, program = "python3", state = "running", since_ms = 5 } },
      seen = { [42] = { pid = 42, rows = {}, devices = {
        { device = 1, reserved_bytes = 7, used_bytes = 5, pinned_reserved_bytes = 3,
          pinned_used_bytes = 2 },
      } } },
    })
    assert.equal(0, status)
    for series, value in pairs {
      ['pool_bytes{pid="42",program="python3",device="1",memory="device"}'] = 7,
      ['pool_used_bytes{pid="42",program="python3",device="1",memory="device"}'] = 5,
      ['pool_bytes{pid="42",program="python3",device="1",memory="pinned"}'] = 3,
      ['pool_used_bytes{pid="42",program="python3",device="1",memory="pinned"}'] = 2,
    } do
      assert.matches(("loam_device_%s %d\n"):format(series, value), context.out, 1, true)
    end
  end)
end)
