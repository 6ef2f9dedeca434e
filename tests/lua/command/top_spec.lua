-- top_spec.lua - `loam top` with canned figures: sums, rates, order, keys, screens.

local canned = require("canned_context")
local canned_figures = require("canned_figures")
local collect = require("loam.command.top.collect")
local columns = require("loam.command.top.columns")
local groups = require("loam.command.top.groups")
local json = require("loam.report.json")
local schedule = require("loam.command.top.schedule")
local terminal = require("loam.command.terminal")
local view = require("loam.command.top.view")

local status, figures = canned_figures.status, canned_figures.figures

-- ---- Canned programs

local function row(tag, bytes, changes)
  local one = { tag = tag, strategy = "plain", kind = "host", live_bytes = bytes,
                live_blocks = bytes / 16, total_bytes = bytes, total_blocks = bytes / 16 }
  for key, value in pairs(changes or {}) do one[key] = value end
  return one
end

local function got(changes)
  local one = { strategy = "plain", elsewhere_bytes = 0, huge_asked_bytes = 0, huge_bytes = 0 }
  for key, value in pairs(changes) do one[key] = value end
  return one
end

-- Reads the processes, and again after a second. Returns the processes and the peaks so far.
local function look_twice(answers, pids)
  local context = canned.new(answers)
  local collected = collect.new(context, pids, 1000)
  collect.round(collected, true)
  context.clock = 1000
  return collect.round(collected, true), collected, context
end

local function by_key(list)
  local found = {}
  for _, group in ipairs(list) do found[group.key] = group end
  return found
end

local function build(processes, by)
  return by_key(groups.build(processes, by, {}, 1000))
end

-- ---- Looks

describe("loam top: looks", function()
  it("are made in each interval while they are cheap", function()
    assert.same({ 1000, 1000 }, schedule.waits({ 1, 2 }, 1000, 0.02))
    assert.same({}, schedule.waits({}, 1000, 0.02))
  end)

  it("are made less often if they are not, and cheap ones do not wait for them", function()
    -- 20 ms of each second are allowed: 1 and 1 are cheap, and leave 18 for the others.
    assert.same({ 1000, 10000, 1000, 20000 }, schedule.waits({ 1, 90, 1, 180 }, 1000, 0.02))
    local waits, sum = schedule.waits({ 5, 50, 500, 1, 7 }, 1000, 0.02), 0
    for i, cost in ipairs { 5, 50, 500, 1, 7 } do sum = sum + cost / waits[i] end
    assert.is_true(sum <= 0.02 + 1e-9)
  end)

  it("of a costly process are rare, and its figures stay", function()
    local looks, context = 0, nil
    local answers = { boards = { status(7) }, figures = { [7] = function()
      looks = looks + 1
      context.cpu = (context.cpu or 0) + 100 -- milliseconds
      return figures { row("a", 160) }
    end } }
    context = canned.new(answers)
    local collected = collect.new(context, nil, 1000)
    local processes
    for second = 0, 20 do
      context.clock = second * 1000
      processes = collect.round(collected, false)
    end
    assert.is_true(looks >= 3 and looks <= 6, looks .. " looks")
    assert.equal(160, build(processes, "tag").a.live_bytes)
  end)

  it("at pages are spread over rounds", function()
    local looks, context = 0, nil
    local answers = { boards = {}, figures = {} }
    for pid = 1, 20 do
      answers.boards[pid] = status(pid)
      answers.figures[pid] = function(_, has_got)
        looks = looks + (has_got and 1 or 0)
        context.cpu = (context.cpu or 0) + (has_got and 11 or 0)
        return figures { row("a", 160) }
      end
    end
    context = canned.new(answers)
    local collected = collect.new(context, nil, 1000)
    collect.round(collected, false)
    assert.equal(3, looks) -- 30 ms of an interval of 1000
    context.clock = 1000
    collect.round(collected, false)
    assert.equal(6, looks)
    context.clock = 2000
    collect.round(collected, true)
    assert.equal(26, looks)
  end)

  it("give rates by the difference of two", function()
    local total = 0
    local processes = look_twice { boards = { status(7) }, figures = { [7] = function()
      total = total + 4096
      return figures { row("a", 160, { total_bytes = total, total_blocks = total / 16 }) }
    end } }
    local a = build(processes, "tag").a
    assert.equal(4096, a.bytes_per_s)
    assert.equal(256, a.blocks_per_s)
  end)

  it("give no rate if nothing was allocated", function()
    local total = 4096
    local processes, collected, context = look_twice { boards = { status(7) },
      figures = { [7] = function()
        total = math.min(total + 4096, 12288)
        return figures { row("a", 160, { total_bytes = total }) }
      end } }
    assert.equal(4096, build(processes, "tag").a.bytes_per_s)
    for second = 2, 3 do
      context.clock = second * 1000
      processes = collect.round(collected, false)
      assert.equal(0, build(processes, "tag").a.bytes_per_s)
    end
    assert.equal(3000, processes[1].looked_at)
  end)

  it("join the rows of one tag and one name of a strategy", function()
    local processes = look_twice { boards = { status(7) },
      figures = { [7] = figures { row("a", 160), row("a", 320) } } }
    assert.equal(480, build(processes, "tag").a.live_bytes)
    assert.equal(0, build(processes, "tag").a.bytes_per_s)
  end)

  it("tell how much memory sleeps, where some does", function()
    local function shown(rows, by)
      local processes = look_twice { boards = { status(7) }, figures = { [7] = figures(rows) } }
      return table.concat(view.sums { total = groups.total(processes) }, "\n") .. "\n"
        .. table.concat(view.table(groups.build(processes, by, {}, 0), by, "live", false), "\n")
    end
    local rows = { row("a", 4096, { asleep_bytes = 2048 }), row("a", 160), row("b", 320) }
    assert.matches("1 process, 4.5 KiB live (2 KiB asleep) in 286 blocks", shown(rows, "tag"), 1,
      true)
    assert.matches("\nTAG +LIVE v  ASLEEP  BLOCKS.*\na +4.2 KiB +2 KiB +266.*\nb +320 B +%- +20",
      shown(rows, "tag"))
    for _, by in ipairs { "strategy", "process", "service" } do
      assert.matches("LIVE v  ASLEEP", shown(rows, by), 1, true)
    end
    assert.not_matches("asleep", shown({ row("a", 160) }, "tag"):lower(), 1, true)
  end)

  it("tell whose memory is short", function()
    local seven, eight = status(7), status(8)
    seven.pressure = { stalled = 12, short = true, alarms = 1 }
    eight.pressure = { stalled = 0, short = false, alarms = 1 }
    local processes = look_twice { boards = { seven, eight },
      figures = { [7] = figures { row("a", 160) }, [8] = figures { row("a", 160) } } }
    local lines = table.concat(view.sums { total = groups.total(processes) }, "\n")
    assert.matches("memory is short: the control group of " .. seven.program
      .. " waits for it 12% of the time", lines, 1, true)
    seven.pressure.short = false
    processes = look_twice { boards = { seven }, figures = { [7] = figures { row("a", 160) } } }
    assert.not_matches("short:", table.concat(view.sums { total = groups.total(processes) }))
  end)

  it("that fail leave the reason", function()
    local processes = look_twice { boards = { status(7) }, figures = { [7] = "only root may" } }
    assert.equal("only root may", processes[1].error)
    assert.equal(1, #groups.total(processes).unreadable)
    local lines = table.concat(view.table(groups.build(processes, "process", {}, 0), "process",
      "live", false), "\n")
    assert.matches("7  prog7    only root may", lines, 1, true)
  end)

  it("are not made at a process of another PID namespace", function()
    local processes = look_twice { boards = { status(1, { state = "unknown" }) },
                                   figures = { [1] = figures { row("init", 160) } } }
    assert.matches("another PID namespace", processes[1].error, 1, true)
    assert.same({}, processes[1].rows)
  end)

  it("show a process that has ended for three seconds", function()
    local answers = { boards = { status(7), status(8) },
                      figures = { [7] = figures { row("a", 160) },
                                  [8] = figures { row("a", 16) } } }
    local processes, collected, context = look_twice(answers)
    assert.equal(2, #processes)
    answers.boards = { status(8) }
    context.clock = 2000
    processes = collect.round(collected, false)
    assert.equal(2000, processes[1].ended_at)
    assert.equal(16, build(processes, "tag").a.live_bytes)
    assert.is_true(build(processes, "process")["7"].ended)
    assert.equal(160, build(processes, "process")["7"].live_bytes)
    context.clock = 5000
    assert.equal(1, #collect.round(collected, false))
  end)

  it("begin again if a process id has another program", function()
    local answers = { boards = { status(7) }, figures = { [7] = figures { row("a", 160) } } }
    local processes, collected, context = look_twice(answers)
    assert.equal(0, build(processes, "tag").a.bytes_per_s)
    answers.boards = { status(7, { since_ms = 6, program = "other" }) }
    context.clock = 2000
    processes = collect.round(collected, false)
    assert.equal("other", processes[1].program)
    assert.is_nil(build(processes, "tag").a.bytes_per_s)
  end)
end)

-- ---- Sums

describe("loam top: groups", function()
  local processes = look_twice {
    boards = { status(7, { program = "web" }), status(8, { program = "web" }),
               status(9, { program = "db", hash = "0000000000000001" }) },
    figures = {
      [7] = figures({ row("a", 160, { limit = 1000, limit_used = 900 }), row("b", 16) },
        { fallbacks = 2, nodes = { { node = 0, bytes = 4096 }, { node = 1, bytes = 8192 } },
          strategies = { { strategy = "plain", kind = "host", failed = 3, served_late = 4 } } }),
      [8] = figures({ row("a", 320, { limit = 1000, limit_used = 100 }) },
        { failed = 1, denied = 2, nodes = { { node = 1, bytes = 4096 } } }),
      [9] = figures({ row("c", 48, { strategy = "gpu", kind = "device" }) },
        { got = { got { strategy = "gpu", elsewhere_bytes = 10, huge_asked_bytes = 7,
                        huge_bytes = 3 } } }),
    },
  }

  it("are tags, with the limit that is nearest", function()
    local found = build(processes, "tag")
    assert.equal(480, found.a.live_bytes)
    assert.equal(2, found.a.processes)
    assert.equal(900, found.a.limit_used)
    assert.is_nil(found.a.fallbacks)
  end)

  it("are strategies, with their failures and shortfalls", function()
    local found = build(processes, "strategy")
    assert.equal(496, found.plain.live_bytes)
    assert.equal(3, found.plain.failed)
    assert.equal(4, found.plain.fallbacks)
    assert.equal(14, found["gpu (device)"].shortfall_bytes)
    assert.equal(0, found["gpu (device)"].failed)
  end)

  it("are nodes", function()
    local found = build(processes, "node")
    assert.equal(4096, found["0"].live_bytes)
    assert.equal(12288, found["1"].live_bytes)
    assert.equal(2, found["1"].processes)
  end)

  it("are processes and services", function()
    local found = build(processes, "process")
    assert.equal(176, found["7"].live_bytes)
    assert.equal(3, found["8"].failed)
    found = build(processes, "service")
    assert.equal(496, found.web.live_bytes)
    assert.equal(2, found.web.processes)
    assert.equal(2, found.web.fallbacks)
    assert.equal("0000000000000001", found.db.hash)
  end)

  it("remember their peaks, and what they had first", function()
    local peaks = {}
    local list = { { pid = 1, program = "p", rows = { row("a", 160) }, looked_at = 0 } }
    groups.build(list, "tag", peaks, 0)
    list[1].rows = { row("a", 16) }
    local again = by_key(groups.build(list, "tag", peaks, 0)).a
    assert.same({ 160, -144 }, { again.peak_bytes, again.grown_bytes })
    list[1].rows = { row("a", 200) }
    assert.equal(40, by_key(groups.build(list, "tag", peaks, 0)).a.grown_bytes)
    local later, unseen = row("b", 7), row("c", 8)
    later.bytes_per_s, unseen.bytes_per_s = 7, nil -- the process of `later` was seen before
    list[1].rows = { row("a", 200), later, unseen }
    local found = by_key(groups.build(list, "tag", peaks, 0))
    assert.same({ 7, 0 }, { found.b.grown_bytes, found.c.grown_bytes })
    list[1].since_ms, list[1].rows = 5, { row("a", 160) }
    groups.build(list, "process", peaks, 0)
    list[1].since_ms, list[1].rows = 6, { row("a", 16) }
    local new = by_key(groups.build(list, "process", peaks, 0))["1"]
    assert.same({ 16, 0 }, { new.peak_bytes, new.grown_bytes })
  end)

  it("have a sum, and the policies of all", function()
    local total = groups.total(processes)
    assert.equal(544, total.live_bytes)
    assert.equal(2, #total.policies)
    assert.equal(2, total.policies[1].processes)
    assert.equal(14, total.shortfall_bytes)
  end)

  it("are put in order, few of many as well", function()
    local list = {}
    for i = 1, 3000 do
      list[i] = { key = "k" .. i, name = "k" .. i, live_bytes = (i * 7919) % 1000 }
    end
    for _, reverse in ipairs { false, true } do
      local is_before = columns.order(columns.find("tag", "live"), reverse)
      local all, few = columns.first(list, is_before, 3000), columns.first(list, is_before, 50)
      assert.equal(3000, #all)
      assert.equal(50, #few)
      for i = 1, 50 do assert.equal(all[i].key, few[i].key) end
      assert.equal(reverse and 0 or 999, all[1].live_bytes)
    end
    local is_before = columns.order(columns.find("tag", "rate"), false)
    list[17].bytes_per_s = 1
    assert.equal("k17", columns.first(list, is_before, 1)[1].key)
    assert.equal(1, #columns.filter("tag", list, "K2999"))
  end)
end)

-- ---- Lists and JSON

describe("loam top without a terminal", function()
  local answers = { boards = { status(7) }, figures = { [7] = figures { row("a\27b", 160) } } }

  it("writes one list after one interval", function()
    local result, context = canned.run("top", answers)
    assert.equal(0, result)
    assert.equal(1000, context.clock)
    assert.matches("1 process, 160 B live in 10 blocks; 0 B/s in 0 blocks/s", context.out, 1, true)
    assert.matches("policy prod 00000000deadbeef in 1", context.out, 1, true)
    assert.matches("a\\027b  ", context.out, 1, true)
  end)

  it("counts one block in the singular", function()
    local looks = 0
    local _, context = canned.run("top", { boards = { status(7) }, figures = { [7] = function()
      looks = looks + 1
      return figures { row("a", 160, { total_blocks = 10 + looks }) }
    end } })
    assert.matches("; 0 B/s in 1 block/s\n", context.out, 1, true)
  end)

  it("writes an object after each interval", function()
    local result, context = canned.run("top --json --count 3 --every 500ms --by process", answers)
    assert.equal(0, result)
    assert.equal(1500, context.clock)
    local lines = {}
    for line in context.out:gmatch("[^\n]+") do lines[#lines + 1] = assert(json.decode(line)) end
    assert.equal(3, #lines)
    assert.equal("top", lines[3].verb)
    assert.equal(7, lines[3].rows[1].pid)
    assert.equal("running", lines[3].rows[1].state)
    assert.equal(160, lines[3].total.live_bytes)
    assert.matches('"at":1000000000000,', context.out, 1, true)
  end)

  it("ends by Ctrl-C, and when the processes that were named have ended", function()
    local result, context = canned.run("top --json", answers, nil, nil, function(context)
      context.waits = { false, true }
    end)
    assert.equal(130, result)
    assert.equal(1, select(2, context.out:gsub("\n", "")))
    local looks = 0
    local one = { figures = { [7] = function()
      looks = looks + 1
      return looks < 4 and figures { row("a", 16) } or nil
    end } }
    result = canned.run("top 7 --json", one, nil, nil, function(changed)
      changed.posix.exists = function() return looks < 4 end
    end)
    assert.equal(0, result)
    assert.is_true(looks >= 4)
  end)

  it("says that nothing runs, and why nothing can be read", function()
    local result, context = canned.run("top", {})
    assert.equal(0, result)
    assert.matches("no program of yours runs under loam", context.err, 1, true)
    result, context = canned.run("top", { boards = { status(7) }, figures = { [7] = "only root" } })
    assert.equal(1, result)
    assert.equal("loam: only root\n", context.err)
    result, context = canned.run("top 7", {})
    assert.equal(1, result)
    assert.matches("process 7: there is no such process", context.err, 1, true)
  end)

  it("sorts by the heading of a column too", function()
    local _, context = canned.run("top --sort Bytes/s", answers)
    assert.matches("BYTES/S v", context.out, 1, true)
  end)

  it("refuses wrong options", function()
    for words, message in pairs {
      ["--by host"] = "--by: 'host' is none of tag, strategy, node, process, service",
      ["--sort size"] = "--sort: 'size' is none of name, live,",
      ["--sort pid"] = "--sort: 'pid' is none of",
      ["--every 10ms"] = "--every: 10ms is less than 100ms",
      ["--count 0"] = "--count: '0' is not a whole number from 1",
      ["x"] = "'x' is not a process id",
    } do
      local result, context = canned.run("top " .. words, answers)
      assert.equal(2, result)
      assert.matches(message, context.err, 1, true)
    end
  end)
end)

-- ---- The screen

-- Returns a terminal that gives the events of a list, one at a time, and keeps each screen.
local function fake_screen(events, columns_n, rows)
  local screen = { shown = {}, size_now = { columns_n or 100, rows or 20 } }
  screen.open = function()
    screen.is_open = true
    return true
  end
  screen.close = function() screen.is_open = false end
  screen.size = function() return unpack(screen.size_now) end
  screen.suspend = function() screen.was_suspended = true end
  screen.write = function(text)
    screen.shown[#screen.shown + 1] = text
    return true
  end
  screen.wait = function(ms)
    local event = table.remove(events, 1) or { "end", 15 }
    if event.size then screen.size_now = event.size end
    if event[1] == "time" then screen.context.clock = screen.context.clock + ms end
    return event[1], event[2] or 0
  end
  return screen
end

local function on_screen(answers, events, columns_n, rows, words)
  local screen = fake_screen(events, columns_n, rows)
  local result, context = canned.run("top " .. (words or ""), answers, nil, nil, function(context)
    screen.context, context.terminal, context.posix.screen = context, true, screen
  end)
  return result, screen, context
end

local function keys(text) return { "keys", text } end

describe("loam top on a terminal", function()
  it("has help for 80 columns and 24 lines", function()
    assert.is_true(#view.HELP <= 24, #view.HELP)
    for _, line in ipairs(view.HELP) do assert.is_true(#line <= 80, line) end
  end)

  local rows = {}
  for i = 1, 40 do rows[i] = row(("tag%02d"):format(i), i * 16) end
  local answers = { boards = { status(7), status(8) },
                    figures = { [7] = figures(rows), [8] = figures { row("eight", 8192) } } }

  it("draws sums, heads and rows, and restores the terminal", function()
    local result, screen = on_screen(answers, { { "time" }, keys "q" })
    assert.equal(0, result)
    assert.is_false(screen.is_open)
    assert.matches("loam top by tag, every 1s", screen.shown[2], 1, true)
    assert.matches("eight", screen.shown[2], 1, true)
    assert.matches("TAG%s+LIVE v", screen.shown[2])
  end)

  it("draws no more lines and characters than the terminal has", function()
    for _, size in ipairs { { 20, 5 }, { 1, 1 }, { 300, 100 }, { 80, 8 }, { 5, 2 }, { 40, 12 } } do
      for _, pressed in ipairs { "1", "4", "h", "/x", " " } do
        local _, screen = on_screen(answers, { { "resized", size = size }, keys(pressed) })
        local drawn = screen.shown[#screen.shown]
        -- Behind a line that fills the terminal, these would clear its last character.
        assert.is_nil(drawn:find("[^H\n]\27%[[JK]"))
        local last = drawn:gsub("\27%[[%d;]*%a", "")
        local lines = 0
        for line in (last .. "\r\n"):gmatch("(.-)\r\n") do
          lines = lines + 1
          assert.is_true(terminal.width(line) <= size[1], size[1] .. pressed .. line)
        end
        assert.is_true(lines <= size[2], lines .. " lines of " .. size[2])
      end
    end
  end)

  it("marks rows that the terminal cuts, because a figure may be cut too", function()
    local _, screen = on_screen(answers, { { "time" }, keys "q" }, 30)
    assert.matches("\neight[^\r]*~\r", (screen.shown[2]:gsub("\27%[%d*%a", "")))
  end)

  it("switches the grouping, the order and the filter by keys", function()
    local _, screen = on_screen(answers, { keys "g", keys "4", keys "<", keys "r", keys "1r",
      keys "/", keys "TAG1x\127\t\27[A", keys "\r", keys "/", keys "\27", keys "q" })
    local shown = screen.shown
    assert.matches("by strategy", shown[2], 1, true)
    assert.matches("by process", shown[3], 1, true)
    assert.matches("STATE ^", shown[4], 1, true)
    assert.matches("STATE v", shown[5], 1, true)
    assert.matches("filter: TAG1_", shown[8], 1, true)
    assert.matches("filter TAG1", shown[9], 1, true)
    assert.matches("tag19", shown[9], 1, true)
    assert.is_nil(shown[9]:find("tag20", 1, true))
    assert.matches("eight", shown[11], 1, true)
  end)

  it("moves through the rows", function()
    local _, screen = on_screen(answers, { keys "\27[B", keys "\27[6~", keys "\27[F", keys "\27[H",
      keys "\27[B\27[A", keys "q" })
    local shown = screen.shown
    assert.matches("eight", shown[1], 1, true)
    assert.is_nil(shown[2]:find("eight", 1, true))
    assert.matches("tag40", shown[2], 1, true)
    assert.is_nil(shown[3]:find("tag40", 1, true))
    assert.matches("tag01", shown[4], 1, true)
    assert.matches("eight", shown[5], 1, true)
    assert.matches("eight", shown[6], 1, true)
  end)

  it("freezes, shows help, suspends, and ends by signals", function()
    local looks = 0
    local counted = { boards = { status(7) }, figures = { [7] = function()
      looks = looks + 1
      return figures { row("a", 16) }
    end } }
    local result, screen = on_screen(counted, { keys " ", { "time" }, { "time" }, keys "h",
      keys "x", { "stop" }, { "end", 15 } })
    assert.equal(143, result)
    assert.equal(1, looks)
    assert.matches("FROZEN", screen.shown[2], 1, true)
    assert.matches("this help", screen.shown[5], 1, true)
    assert.is_nil(screen.shown[6]:find("this help", 1, true))
    assert.is_true(screen.was_suspended)
    assert.is_false(screen.is_open)
    assert.equal(0, (on_screen(counted, { keys "\3" })))
    assert.equal(0, (on_screen(counted, { keys "/ab\3" })))
  end)

  it("says that the programs have ended", function()
    local events = { { "time" }, { "time" }, { "time" }, { "time" }, { "time" }, keys "q" }
    local looks = 0
    local one = { figures = { [7] = function()
      looks = looks + 1
      return looks == 1 and figures { row("a", 16) } or "gone"
    end } }
    local screen = fake_screen(events)
    canned.run("top 7", one, nil, nil, function(context)
      screen.context, context.terminal, context.posix.screen = context, true, screen
      context.posix.exists = function() return looks < 2 end
    end)
    assert.matches("1 process,", screen.shown[1], 1, true)
    assert.matches("the programs have ended", screen.shown[#screen.shown], 1, true)
  end)

  it("restores the terminal after an error", function()
    local screen = fake_screen({})
    screen.size = function() error("broken") end
    local result, context = canned.run("top", answers, nil, nil, function(context)
      screen.context, context.terminal, context.posix.screen = context, true, screen
    end)
    assert.equal(70, result)
    assert.is_false(screen.is_open)
    assert.matches("broken", context.err, 1, true)
  end)

  it("never writes bytes of a program raw", function()
    local wild = "a\27]0;x\7\155\194\155\226\128\174\255\r\nz"
    local hostile = { boards = { status(7, { program = wild, name = wild }) },
                      figures = { [7] = figures { row(wild, 16, { strategy = wild }) } } }
    for _, pressed in ipairs { "1", "2", "4", "5", "/\226\128\174\194\155" } do
      local _, screen = on_screen(hostile, { keys(pressed), keys "q" }, 200, 30)
      local text = screen.shown[2]:gsub("\27%[[%d;]*[A-Za-z]", ""):gsub("\r\n", "")
      assert.is_nil(text:find("[%c\127\155\255]"), pressed)
      assert.is_nil(text:find("\194\155", 1, true))
      assert.is_nil(text:find("\226\128\174", 1, true))
      if #pressed == 1 then assert.matches("a\\027]0;x\\007", text, 1, true) end
    end
  end)

  it("is a list if the terminal has no cursor", function()
    local _, context = canned.run("top", answers, { TERM = "dumb" }, nil, function(context)
      context.terminal = true
    end)
    assert.matches("2 processes", context.out, 1, true)
  end)
end)

describe("terminal.plain", function()
  it("shows UTF-8, and other bytes as numbers", function()
    for text, shown in pairs {
      ["plain"] = "plain", ["\195\164\226\130\172"] = "\195\164\226\130\172",
      ["\240\159\152\128"] = "\240\159\152\128",
      ["a\27b\127"] = "a\\027b\\127", ["\194\155"] = "\\194\\155", ["\194\160"] = "\194\160",
      ["\255x"] = "\\255x", ["\192\128"] = "\\192\\128", ["\237\160\128"] = "\\237\\160\\128",
      ["\226\128\174"] = "\\226\\128\\174", ["\244\144\128\128"] = "\\244\\144\\128\\128",
      ["\226\130"] = "\\226\\130", ["\195\164\128"] = "\\195\\164\\128",
    } do
      assert.equal(shown, terminal.plain(text))
    end
  end)

  it("cuts after whole characters", function()
    assert.equal("\195\164b", terminal.cut("\195\164bc", 2))
    assert.equal("", terminal.cut("abc", 0))
    assert.equal("abc", terminal.cut("abc", 3))
  end)
end)
