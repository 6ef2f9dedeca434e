-- stats_spec.lua - `loam stats` reads a program from outside, asks it, or shows its last figures.

local run = require("canned_context").run

-- The status of a process on a board, with some members changed.
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

  local function figures(live, blocks, total, ever)
    return { live_bytes = live, live_blocks = blocks, total_bytes = total, total_blocks = ever }
  end
  local function with(base, more)
    for key, value in pairs(more) do base[key] = value end
    return base
  end
  local CLASSES = with({}, FIGURES)
  CLASSES.rows = {
    with(figures(96, 4, 200, 9), { tag = "a", strategy = "plain", kind = "host", classes = {
      with(figures(32, 2, 40, 4), { from = 0, to = 16 }),
      with(figures(64, 2, 160, 5), { from = 17, to = 32 }) } }),
    with(figures(48, 3, 4096, 5), { tag = "b", strategy = "plain", kind = "host", classes = {
      with(figures(48, 3, 4080, 4), { from = 0, to = 16 }),
      with(figures(0, 0, 16, 1), { from = 0, to = 2 ^ 47 }) } }),
    with(figures(7, 1, 7, 1), { tag = "old", strategy = "file", kind = "file" }),
  }
  it("does not say that memory was short where a limit refused a request", function()
    local refused = with(with({}, FIGURES), { failed = 1 })
    local _, context = run("stats 42", { seen = { [42] = refused } })
    assert.matches("1 request failed: no strategy of the chain could serve\n", context.out, 1, true)
  end)

  local function rows_by(keys)
    local status, context = run("stats 42 --by " .. keys, { seen = { [42] = CLASSES } })
    assert.equal(0, status)
    return (context.out:gsub("live 0 B in.*$", ""))
  end

  it("shows what the pools of a device have", function()
    local function device(number, has, used, pinned, pinned_used)
      return { device = number, reserved_bytes = has * 2 ^ 20, used_bytes = used * 2 ^ 20,
               pinned_reserved_bytes = pinned * 2 ^ 20, pinned_used_bytes = pinned_used * 2 ^ 20 }
    end
    local with_devices = with(with({}, FIGURES), { devices = {
      device(0, 64, 24, 16, 12), device(1, 8, 8, 0, 0), device(2, 0, 0, 0, 0),
      device(3, 0, 0, 4, 0) } })
    local _, context = run("stats 42", { seen = { [42] = with_devices } })
    assert.matches("device 0: pools have 64 MiB, of which 24 MiB are in use; "
      .. "pinned memory 16 MiB, of which 12 MiB are in use\n"
      .. "device 1: pools have 8 MiB, of which 8 MiB are in use\n"
      .. "device 3: pinned memory 4 MiB, of which 0 B are in use\n", context.out, 1, true)
  end)

  it("shows what is asleep, where something is", function()
    local asleep = with({}, FIGURES)
    asleep.rows = {
      with(figures(96, 4, 200, 9), { tag = "a", strategy = "w", kind = "device", asleep_bytes = 64,
        limit = 2048, limit_used = 1024, classes = {
          with(figures(32, 2, 40, 4), { from = 0, to = 16 }),
          with(figures(64, 2, 160, 5), { from = 17, to = 32, asleep_bytes = 64 }) } }),
      with(figures(48, 3, 48, 5), { tag = "b", strategy = "plain", kind = "host" }),
    }
    local function lines(options)
      local _, context = run("stats 42" .. options, { seen = { [42] = asleep } })
      return (context.out:gsub("live 0 B in.*$", ""))
    end
    assert.equal("TAG  STRATEGY    LIVE  BLOCKS   EVER  BLOCKS  ASLEEP         LIMIT\n"
      .. "a    w (device)  96 B       4  200 B       9    64 B  50% of 2 KiB\n"
      .. "b    plain       48 B       3   48 B       5     0 B\n", lines(""))
    assert.matches("UP TO  LIVE  BLOCKS   EVER  BLOCKS  ASLEEP\n"
      .. "   16  32 B       2   40 B       4     0 B\n"
      .. "   32  64 B       2  160 B       5    64 B\n", lines(" --by class"), 1, true)
  end)

  it("groups rows by tag, strategy and size class", function()
    assert.equal("UP TO  LIVE  BLOCKS   EVER  BLOCKS\n"
      .. "   16  80 B       5  4 KiB       8\n"
      .. "   32  64 B       2  160 B       5\n"
      .. "  any   7 B       1   23 B       2\n", rows_by("class"))
    assert.equal("TAG  UP TO  LIVE  BLOCKS   EVER  BLOCKS\n"
      .. "a       16  32 B       2   40 B       4\n"
      .. "a       32  64 B       2  160 B       5\n"
      .. "b       16  48 B       3  4 KiB       4\n"
      .. "b      any   0 B       0   16 B       1\n"
      .. "old    any   7 B       1    7 B       1\n", rows_by("tag,class"))
    assert.equal("STRATEGY   LIVE  BLOCKS     EVER  BLOCKS\n"
      .. "plain     144 B       7  4.2 KiB      14\n"
      .. "file        7 B       1      7 B       1\n", rows_by("strategy"))
    local status, context = run("stats 42 --by size", { seen = { [42] = CLASSES } })
    assert.equal(2, status)
    assert.matches("--by: 'size' is none of tag, strategy and class", context.err, 1, true)
  end)

  it("shows how full a shared limit is and was, and the part of this program", function()
    local shared = {}
    for key, value in pairs(FIGURES) do shared[key] = value end
    shared.rows = { { tag = "a", strategy = "kv", kind = "host", live_bytes = 2 ^ 20,
      live_blocks = 1, total_bytes = 2 ^ 20, total_blocks = 1, limit = 2 ^ 23,
      limit_used = 3 * 2 ^ 21, limit_shared = "kv", limit_own = 2 ^ 20, limit_peak = 2 ^ 23 } }
    local _, context = run("stats 42", { seen = { [42] = shared } })
    assert.matches("75% of 8 MiB, 12% here, peak 100%\n", context.out, 1, true)
  end)

  -- An edit of another option than the limit makes a second strategy of the name. Its memory and
  -- the old memory are one row.
  it("shows the limit of a strategy whose older memory has none", function()
    local old = with(figures(2 ^ 20, 1, 2 ^ 20, 1), { tag = "a", strategy = "s", kind = "host" })
    local new = with(figures(2 ^ 18, 1, 2 ^ 18, 1), { tag = "a", strategy = "s", kind = "host",
      limit = 2 ^ 20, limit_used = 2 ^ 18 })
    for _, rows in ipairs { { old, new }, { new, old } } do
      local _, context = run("stats 42", { seen = { [42] = with(with({}, FIGURES),
        { rows = rows }) } })
      assert.matches("a    s         1.3 MiB       2  1.3 MiB       2  25% of 1 MiB\n", context.out,
        1, true)
    end
  end)

  it("shows the strategy nearest to its limit, where two of one name have limits", function()
    local rows = {}
    for i, used in ipairs { 2 ^ 18, 2 ^ 19 } do
      rows[i] = with(figures(used, 1, used, 1), { tag = "a", strategy = "s", kind = "host",
        limit = 2 ^ 20, limit_used = used, limit_peak = 3 * used / 2 })
    end
    local _, context = run("stats 42", { seen = { [42] = with(with({}, FIGURES),
      { rows = rows }) } })
    assert.matches("50% of 1 MiB, peak 75%\n", context.out, 1, true)
  end)

  it("shows the last figures of a shared limit", function()
    local limits = { { strategy = "kv", used_bytes = 2 ^ 20, limit_bytes = 2 ^ 22,
                       peak_bytes = 3 * 2 ^ 20, shared = "all", shared_used_bytes = 2 ^ 21 } }
    local dead = on_board { state = "ended", ended_at = 990e9, updated_at = 940e9,
                            limits = limits }
    local _, context = run("stats 42", { boards = { dead } })
    assert.matches("kv        1 MiB  3 MiB  4 MiB, and all programs use 2 MiB\n", context.out, 1,
      true)
    local alive = on_board { limits = limits, loam = "0.1.0", generation = 1, name = "p",
      path = "/p.lua", hash = "00000000deadbeef", loaded_at = 0, loads = 1, refused = 0, plans = 1,
      sites = 1, tags_refused = 0 }
    context = select(2, run("status 42", { boards = { alive } }))
    assert.matches("kv: 1 MiB of 4 MiB, peak 3 MiB; all programs that share 'all' use 2 MiB\n",
      context.out, 1, true)
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
      .. "STRATEGY    USED  PEAK  LIMIT\nsmall\\027  1 MiB     ?  2 MiB\n", context.out)
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
          failed = 3, classes = { { to = 16, blocks = 5 }, { to = 65536, blocks = 2 } } },
        { strategy = "foreign", held_bytes = 0, small_blocks = 0, failed = 1 } },
      strategies_left_out = 2, classes_left_out = 1, tags_left_out = 1,
      tags = { { tag = "a.b", live_bytes = 2 ^ 20 } } }
    local _, context = run("stats 42", { boards = { dead } })
    assert.matches("its last figures, of 1 minute ago\n"
      .. "STRATEGY         LIVE  SMALL BLOCKS   HELD  FAILED\n"
      .. "large     about 1 GiB             7  2 GiB       3\n"
      .. "foreign             ?             0    0 B       1\n"
      .. "2 strategies had no place on the board\n"
      .. "TAG         LIVE\na.b  about 1 MiB\n"
      .. "1 tag had no place on the board\n", context.out, 1, true)
    context = select(2, run("stats 42 --by strategy,class", { boards = { dead } }))
    assert.matches("STRATEGY   UP TO   BLOCKS\nlarge         16  about 5\n"
      .. "large     64 KiB  about 2\n1 size class had no place on the board\nTAG",
      context.out, 1, true)
  end)

  it("says why a strategy of a killed program seems to have passed its limit", function()
    local function shown(live)
      local dead = on_board { state = "ended", ended_at = 990e9, updated_at = 940e9,
        strategies = { { strategy = "a", live_bytes = live, held_bytes = 2 ^ 31, small_blocks = 7,
                         failed = 3 } },
        limits = { { strategy = "a", used_bytes = 2 ^ 28, limit_bytes = 2 ^ 29 } } }
      return select(2, run("stats 42", { boards = { dead } })).out
    end
    local words = "\nLIVE counts a block of more than 64 KiB in whole pieces of 64 KiB, so it may "
      .. "be more than the limit; USED is what the limit counts\n"
    assert.matches(words, shown(2 ^ 30), 1, true)
    assert.not_matches("LIVE counts", shown(2 ^ 28), 1, true)
  end)

  it("says what large blocks a killed program had, and that it noted no tags", function()
    local dead = on_board { state = "ended", ended_at = 990e9, updated_at = 940e9,
      strategies = {
        { strategy = "a", live_bytes = 2 ^ 20 + 1600, held_bytes = 2 ^ 21, small_blocks = 100,
          failed = 0, classes = { { to = 16, blocks = 100 } } },
        { strategy = "b", live_bytes = 1600, held_bytes = 2 ^ 16, small_blocks = 100, failed = 0,
          classes = { { to = 16, blocks = 100 } } } } }
    local out = select(2, run("stats 42 --by class", { boards = { dead } })).out
    assert.matches("\na: about 1 MiB more, in blocks of more than 64 KiB\n"
      .. "LIVE counts a block of more than 64 KiB in whole pieces of 64 KiB, so it may be more "
      .. "than the program had\nno tags: a program notes only those whose policy reads req.live\n",
      out, 1, true)
    assert.not_matches("b: about", out, 1, true)
  end)
end)
