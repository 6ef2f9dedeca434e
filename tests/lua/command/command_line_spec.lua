-- command_line_spec.lua - the command line of a process, and where the command shows it.

local canned = require("canned_context")
local json = require("loam.report.json")

describe("a command line", function()
  local FIGURES = {
    pid = 42, live_bytes = 64, live_blocks = 1, denied = 0, fallbacks = 0, failed = 0,
    rows = { { tag = "malloc.postgres", strategy = "s", kind = "host", live_bytes = 64,
               live_blocks = 1, total_bytes = 64, total_blocks = 1 } },
  }

  local function status_of(changes)
    local status = {
      pid = 42, program = "postgres", loam = "1.0.0", state = "running", generation = 1,
      name = "prod", path = "/p.lua", hash = "00000000deadbeef", loaded_at = 0, loads = 1,
      refused = 0, plans = 1, sites = 1, tags_refused = 0, since_ms = 5,
      last = { ok = true, at = 1, error = "" }, limits = {}, updated_at = 1e9, uid = 0,
    }
    for key, value in pairs(changes) do status[key] = value end
    return status
  end

  local WRITER = "postgres: background \27[2J writer"

  -- Runs the command with two processes of one program. Returns its output. `columns` is the width
  -- of the terminal; nil: it writes to no terminal.
  local function run(words, columns, changes)
    local status, context = canned.run(words, {
      boards = { status_of(changes or {}), status_of { pid = 43 } },
      figures = { [42] = FIGURES, [43] = FIGURES }, seen = { [42] = FIGURES, [43] = FIGURES },
      command_lines = { [42] = WRITER, [43] = "postgres -D /var/lib/postgresql" },
    }, nil, nil, function(made)
      made.exists = { ["/proc/42"] = true, ["/proc/43"] = true }
      made.terminal = columns ~= nil
      made.posix.screen = { size = function() return columns, 24 end }
    end)
    assert.equal(0, status, context.err)
    return context.out
  end

  it("is the last column of `loam ps`, without control characters", function()
    local head = "PID  PROGRAM   STATE    GENERATION  POLICY  FILE    LAST RELOAD  COMMAND\n"
    local rest = "  running           1  prod    /p.lua  ok           postgres"
    assert.equal(head .. " 42  postgres" .. rest .. ": background \\027[2J writer\n"
      .. " 43  postgres" .. rest .. " -D /var/lib/postgresql\n", run("ps"))
  end)

  it("is cut where a line of a terminal ends, but not below 20 characters", function()
    local wide, narrow = run("ps", 92), run("ps", 40)
    assert.matches("ok           postgres: background \\027[~\n", wide, 1, true)
    assert.matches("ok           postgres -D /var/li~\n", narrow, 1, true)
    for line in wide:gmatch("[^\n]+") do assert.is_true(#line <= 92) end
    assert.matches(" -D /var/lib/postgresql\n", run("ps", 100), 1, true)
  end)

  it("helps to choose a program", function()
    local status, context = canned.run("stats", {
      boards = { status_of {}, status_of { pid = 43 }, status_of { pid = 44 } },
      command_lines = { [42] = WRITER, [43] = "postgres " .. ("x"):rep(50) },
    })
    assert.equal(2, status)
    assert.equal("loam stats: 3 programs run under loam; choose one:\n"
      .. "  loam stats 42    # postgres: background \\027[2J writer\n"
      .. "  loam stats 43    # postgres " .. ("x"):rep(40) .. "~\n"
      .. "  loam stats 44    # postgres\n", context.err)
  end)

  it("is in `loam status`, and in JSON", function()
    assert.matches("\ncommand   postgres: background \\027[2J writer\n", run("status 42"), 1, true)
    local programs = json.decode(run("ps --json")).programs
    assert.same({ WRITER, "postgres -D /var/lib/postgresql" },
      { programs[1].command, programs[2].command })
    assert.equal(WRITER, json.decode(run("status 42 --json")).command)
  end)

  it("is not shown for a process that has ended or whose id is another one here", function()
    for _, state in ipairs { "ended", "unknown" } do
      local programs = json.decode(run("ps --all --json", nil, { state = state })).programs
      assert.is_nil(programs[1].command)
      assert.is_string(programs[2].command)
    end
  end)

  it("is the last column of `loam top` by process, and --filter finds it", function()
    local out = run("top --by process --count 1")
    assert.matches(" AGE  COMMAND\n", out, 1, true)
    assert.matches("s  postgres: background \\027[2J writer\n", out, 1, true)
    out = run("top --by process --count 1 --filter WRITER")
    assert.matches("\n 42  postgres", out, 1, true)
    assert.is_nil(out:find("\n 43  postgres", 1, true))
    assert.is_nil(run("top --by service --count 1 --filter writer"):find("\npostgres", 1, true))
    assert.equal(WRITER, json.decode(run("top 42 --by process --count 1 --json")).rows[1].command)
  end)
end)
