-- stats_spec.lua - `loam stats` reads a program from outside, asks it, or shows its last words.

local run = require("canned_context").run

-- The status of a process as a board gives it, with some members changed.
local function on_board(changes)
  local row = { pid = 42, program = "python3", state = "running", announced = false, ended_at = 0,
                since_ms = 5, uid = 1000, updated_at = 0 }
  for key, value in pairs(changes or {}) do row[key] = value end
  return row
end

describe("loam stats", function()
  local FIGURES = {
    pid = 42, generation = 1, live_bytes = 0, live_blocks = 0, total_bytes = 0, total_blocks = 0,
    reserved_bytes = 0, region_bytes = 0, metadata_bytes = 0, denied = 0, fallbacks = 0, failed = 0,
    bad_frees = 0, rows = {},
  }

  it("reads figures from outside, and asks a program that it may not read", function()
    local _, context = run("stats 42", { seen = { [42] = FIGURES } })
    assert.matches("live 0 B in 0 blocks", context.out, 1, true)
    assert.same({}, context.queries)
    _, context = run("stats 42", { [42] = FIGURES })
    assert.matches("live 0 B in 0 blocks", context.out, 1, true)
    assert.same({ "stats" }, context.queries)
    local status
    status, context = run("stats 42", {})
    assert.equal(1, status)
    assert.matches("process 42 cannot be read", context.err, 1, true)
  end)

  it("reads the only program on a board without its process id", function()
    local _, context = run("stats", { boards = { on_board() }, seen = { [42] = FIGURES } })
    assert.matches("live 0 B in 0 blocks", context.out, 1, true)
    local status
    status, context = run("stats", { boards = { on_board(), on_board { pid = 43 } } })
    assert.equal(2, status)
    assert.matches("loam stats 43    # python3", context.err, 1, true)
  end)

  it("says that figures are not exact", function()
    local changing = { inexact = true }
    for key, value in pairs(FIGURES) do changing[key] = value end
    local _, context = run("stats 42", { seen = { [42] = changing } })
    assert.matches("the figures are not exact", context.out, 1, true)
  end)

  it("shows the last figures of a program that was killed or cannot be read", function()
    local limits = { { strategy = "small\27", used_bytes = 2 ^ 20, limit_bytes = 2 ^ 21 } }
    local dead = on_board { state = "ended", ended_at = 990e9, updated_at = 940e9,
                            limits = limits }
    local status, context = run("stats 42", { boards = { dead } })
    assert.equal(0, status)
    assert.equal("python3 (42): ended 10 seconds ago or earlier; its last figures, "
      .. "of 1 minute ago\n"
      .. "STRATEGY    USED  LIMIT\nsmall\\027  1 MiB  2 MiB\n", context.out)
    context = select(2, run("stats 42 --json", { boards = { dead } }))
    assert.matches('"used_bytes":1048576', context.out, 1, true)
    status, context = run("stats 42", { boards = { on_board { updated_at = 999e9 } } })
    assert.equal(0, status)
    assert.matches("process 42 cannot be read", context.err, 1, true)
    assert.matches("noted no figures of its memory", context.out, 1, true)
  end)

  it("shows the last figures of strategies and tags", function()
    local dead = on_board { state = "ended", ended_at = 990e9, updated_at = 940e9,
      strategies = {
        { strategy = "large", live_bytes = 2 ^ 30, held_bytes = 2 ^ 31, small_blocks = 7,
          failed = 3 },
        { strategy = "foreign", held_bytes = 0, small_blocks = 0, failed = 1 } },
      strategies_left_out = 2, tags = { { tag = "a.b", live_bytes = 2 ^ 20 } },
      tags_left_out = 1 }
    local _, context = run("stats 42", { boards = { dead } })
    assert.matches("its last figures, of 1 minute ago\n"
      .. "STRATEGY         LIVE  SMALL BLOCKS   HELD  FAILED\n"
      .. "large     about 1 GiB             7  2 GiB       3\n"
      .. "foreign             ?             0    0 B       1\n"
      .. "2 strategies had no place on the board\n"
      .. "TAG         LIVE\na.b  about 1 MiB\n"
      .. "1 tag had no place on the board\n", context.out, 1, true)
  end)
end)
