-- metrics_spec.lua - `loam metrics`: the grammar of both formats, the series, how tags are folded,
-- and how often processes are read.

local accept = require("loam.command.metrics.accept")
local canned = require("canned_context")
local collector = require("loam.command.metrics.collector")
local exposition = require("loam.command.metrics.exposition")
local folded_tags = require("loam.command.metrics.folded_tags")
local http = require("loam.command.metrics.http")
local pages = require("loam.command.metrics.pages")

-- ---- canned processes

local function with(defaults, changes)
  for key, value in pairs(changes or {}) do defaults[key] = value end
  return defaults
end

-- The status of a process on a board, with some members changed.
local function on_board(changes)
  return with({
    pid = 42, program = "python3", loam = "1.0.0", state = "running", since_ms = 5, uid = 1000,
    generation = 3, name = "production", hash = "91f0c1d2a3b4c5d6", loaded_at = 5e9, loads = 4,
    refused = 1, last = { ok = true, at = 6e9, error = "" }, tags_refused = 0, limits = {},
    updated_at = 7e9,
  }, changes)
end

-- The answer to `stats`, with some members changed.
local function seen(changes)
  return with({
    pid = 42, generation = 3, live_bytes = 0, live_blocks = 0, total_bytes = 0, total_blocks = 0,
    reserved_bytes = 2 ^ 40, region_bytes = 4096, metadata_bytes = 64, denied = 2, fallbacks = 3,
    failed = 4, bad_frees = 0, rows = {}, got = {},
  }, changes)
end

local function row(tag, live, total, changes)
  return with({
    tag = tag, strategy = "plain", kind = "host", live_bytes = live, live_blocks = 1,
    total_bytes = total or live, total_blocks = 2,
  }, changes)
end

local function source_of(answers, tags)
  local context = canned.new(answers)
  return pages.new(context, tags or 200), context
end

-- ---- a strict reader of both formats

local UNESCAPED = { ["\\\\"] = "\\", ['\\"'] = '"', ["\\n"] = "\n" }

local function read_value(text, at)
  local out = {}
  while true do
    local c = text:sub(at, at)
    assert(c ~= "" and c ~= "\n", "a label without end: " .. text)
    if c == '"' then return table.concat(out), at + 1 end
    local pair = c == "\\" and text:sub(at, at + 1)
    assert(not pair or UNESCAPED[pair], "an unknown escape: " .. text)
    out[#out + 1] = pair and UNESCAPED[pair] or c
    at = at + (pair and 2 or 1)
  end
end

-- Reads `{a="1",b="2"} 3` at `at`. Returns the labels, and the text after them.
local function read_labels(line, at)
  local labels = {}
  if line:sub(at, at) ~= "{" then return labels, line:sub(at) end
  at = at + 1
  while true do
    local name, start = line:match('^([%a_][%w_]*)="()', at)
    assert(name and not labels[name], "a bad label: " .. line)
    labels[name], at = read_value(line, start)
    local c = line:sub(at, at)
    if c == "}" then return labels, line:sub(at + 1) end
    assert(c == ",", "',' or '}' expected: " .. line)
    at = at + 1
  end
end

local function read_sample(line, families, seen_series)
  local name, at = line:match("^([%a_:][%w_:]*)()")
  assert(name, "a line without name: " .. line)
  local labels, rest = read_labels(line, at)
  local value = rest:match("^ (%S+)$")
  assert(value and (tonumber(value) or value == "NaN" or value == "+Inf"), "no value: " .. line)
  local key = name .. line:sub(at, #line - #rest)
  assert(not seen_series[key], "a series twice: " .. line)
  seen_series[key] = true
  return { name = name, labels = labels, value = tonumber(value), family = families.last }
end

local SUFFIXES = {
  openmetrics = { gauge = "", counter = "_total", info = "_info" },
  text = { gauge = "", counter = "" },
}

local function read_comment(line, families, format)
  local what, name, rest = line:match("^# (%u+) ([%a_:][%w_:]*) (.+)$")
  assert(what == "TYPE" or what == "HELP" or (what == "UNIT" and format == "openmetrics"), line)
  if families.last ~= name then
    assert(not families[name], "a family twice: " .. line)
    families[name], families.last = {}, name
  end
  assert(not families[name][what] and not families[name].has_samples, line)
  families[name][what] = rest
  if what == "TYPE" then assert(SUFFIXES[format][rest], "an unknown type: " .. line) end
  if what == "UNIT" then assert(name:sub(-#rest - 1) == "_" .. rest, line) end
end

-- Reads a page by the grammar of its format. Returns all samples.
local function read_page(text, format)
  local families, series, samples, ended = {}, {}, {}, false
  assert(text:sub(-1) == "\n" and not text:find("\n\n", 1, true))
  for line in text:gmatch("([^\n]*)\n") do
    assert(not ended, "a line after the end")
    ended = format == "openmetrics" and line == "# EOF"
    if line:sub(1, 1) == "#" then
      if not ended then read_comment(line, families, format) end
    else
      local sample = read_sample(line, families, series)
      local family = families[sample.family]
      assert(sample.name == sample.family .. SUFFIXES[format][family.TYPE], line)
      assert(family.HELP, line)
      family.has_samples = true
      samples[#samples + 1] = sample
    end
  end
  assert(format ~= "openmetrics" or ended, "no # EOF")
  return samples
end

local function find(samples, name, labels)
  local found = {}
  for _, sample in ipairs(samples) do
    local fits = sample.name == name
    for key, value in pairs(labels or {}) do fits = fits and sample.labels[key] == value end
    if fits then found[#found + 1] = sample end
  end
  return found
end

-- Returns the value of the only sample with this name and labels, or nil if there is none.
local function value_of(samples, name, labels)
  local found = find(samples, name, labels)
  assert(#found <= 1, "several samples of " .. name)
  return found[1] and found[1].value
end

local HOSTILE = {
  "", "plain.tag", 'quote"s', "back\\slash", "new\nline", "\\n", '\\"', "tab\tand\rreturn",
  '{a="b"}', "# EOF", "a} 1\n# EOF\n", "ünïcödé \240\159\146\190", ("x"):rep(255), "\1\2\127",
  "other", "Other",
}

describe("the page of loam metrics", function()
  it("obeys the grammar of both formats for every tag", function()
    local rows = {}
    for i, tag in ipairs(HOSTILE) do rows[i] = row(tag, i) end
    local source = source_of({
      boards = { on_board { program = 'p"\\\n{', name = 'n"\n' } },
      seen = { [42] = seen { rows = rows } },
    })
    for _, format in ipairs { "openmetrics", "text" } do
      local samples = read_page(pages.get(source, format), format)
      for i, tag in ipairs(HOSTILE) do
        assert.equal(i, value_of(samples, "loam_live_bytes", { tag = tag, program = 'p"\\\n{' }))
      end
      assert.equal(1, value_of(samples, "loam_policy_info", { name = 'n"\n' }))
    end
  end)

  it("repairs bytes that are not UTF-8, and joins tags that are equal then", function()
    local labels = exposition.labels("tag", "a\255b\192\128\237\160\128")
    assert.equal('tag="a\195\191b\195\128\194\128\195\173\194\160\194\128"', labels)
    local repaired = "a\195\191"
    local source = source_of({ boards = { on_board() },
      seen = { [42] = seen { rows = { row("a\255", 3), row("a\195\191", 4) } } } })
    local samples = read_page(pages.get(source, "text"), "text")
    assert.equal(7, value_of(samples, "loam_live_bytes", { tag = repaired }))
  end)

  it("writes numbers as both formats read them", function()
    local number = exposition.number
    assert.equal("0", number(0))
    assert.equal("9007199254740992", number(2 ^ 53))
    assert.equal("0.25", number(0.25))
    assert.equal("0.1", number(0.1))
    assert.equal("+Inf", number(math.huge))
    assert.equal("-Inf", number(-math.huge))
    assert.equal("NaN", number(0 / 0))
  end)

  it("is text without a type `info`, or OpenMetrics with its end", function()
    local source = source_of({ boards = { on_board() }, seen = { [42] = seen() } })
    local text = pages.get(source, "text")
    assert.matches("# TYPE loam_policy_info gauge\n", text, 1, true)
    assert.matches("# TYPE loam_denied_requests_total counter\n", text, 1, true)
    local open = pages.get(source, "openmetrics")
    assert.matches("# TYPE loam_policy info\n", open, 1, true)
    assert.matches("# TYPE loam_denied_requests counter\n", open, 1, true)
    assert.matches("# TYPE loam_held_bytes gauge\n# UNIT loam_held_bytes bytes\n", open, 1, true)
  end)

  it("has no family without samples", function()
    local text = pages.get(source_of({}), "text")
    assert.equal(0, value_of(read_page(text, "text"), "loam_processes"))
    assert.not_matches("loam_live_bytes", text, 1, true)
  end)
end)

describe("the series of loam metrics", function()
  local function samples_of(status, figures)
    local source = source_of({ boards = { status }, seen = { [42] = figures } })
    return read_page(pages.get(source, "openmetrics"), "openmetrics")
  end

  it("have the memory that sleeps, and 0 for device memory that is awake", function()
    local function device(tag, changes)
      changes.kind = "device"
      return row(tag, 64, 64, changes)
    end
    local source = source_of({ boards = { on_board() }, seen = { [42] = seen { rows = {
      device("a", { asleep_bytes = 40 }), device("a", { asleep_bytes = 2 }), device("b", {}),
      device("c", { asleep_bytes = 8 }), row("d", 5),
    } } } }, 3)
    local text = pages.get(source, "openmetrics")
    assert.matches("# TYPE loam_asleep_bytes gauge\n# UNIT loam_asleep_bytes bytes\n"
      .. "# HELP loam_asleep_bytes Part of the memory in use", text, 1, true)
    local samples = read_page(text, "openmetrics")
    assert.equal(42, value_of(samples, "loam_asleep_bytes", { tag = "a", kind = "device" }))
    assert.equal(0, value_of(samples, "loam_asleep_bytes", { tag = "b" }))
    assert.equal(8, value_of(samples, "loam_asleep_bytes", { tag = "c" }))
    assert.equal(3, #find(samples, "loam_asleep_bytes"))
    local folded = source_of({ boards = { on_board() }, seen = { [42] = seen { rows = {
      device("b", { asleep_bytes = 7 }), device("c", { asleep_bytes = 8 }),
      device("d", { asleep_bytes = 9 }) } } } }, 1)
    samples = read_page(pages.get(folded, "text"), "text")
    assert.equal(7, value_of(samples, "loam_asleep_bytes", { tag = "b" }))
    assert.equal(17, value_of(samples, "loam_asleep_bytes", { tag = "other" }))
  end)

  it("are those of memory, requests and policy", function()
    local samples = samples_of(on_board(), seen {
      resident_bytes = 10, resident_own_bytes = 9,
      rows = { row("a", 5, 50, { limit = 100, limit_used = 60, limit_peak = 80 }) },
    })
    local own = { pid = "42", program = "python3" }
    assert.equal(5, value_of(samples, "loam_live_bytes", { tag = "a", kind = "host" }))
    assert.equal(50, value_of(samples, "loam_allocated_bytes_total", { strategy = "plain" }))
    assert.equal(100, value_of(samples, "loam_limit_bytes", { strategy = "plain" }))
    assert.equal(60, value_of(samples, "loam_limit_used_bytes", { strategy = "plain" }))
    assert.equal(80, value_of(samples, "loam_limit_peak_bytes", { strategy = "plain" }))
    assert.equal(2, value_of(samples, "loam_denied_requests_total", own))
    assert.equal(9, value_of(samples, "loam_resident_loam_bytes", own))
    assert.equal(1, value_of(samples, "loam_policy_info",
      { name = "production", hash = "91f0c1d2a3b4c5d6" }))
    assert.equal(3, value_of(samples, "loam_policy_generation", own))
    assert.equal(1, value_of(samples, "loam_policy_last_load_successful", own))
    assert.equal(6, value_of(samples, "loam_policy_last_load_timestamp_seconds", own))
    assert.equal(0, value_of(samples, "loam_figures_age_seconds", own))
    assert.equal(1, value_of(samples, "loam_processes"))
  end)

  it("tell of a shared limit what the process uses, and what all use", function()
    local of_kv = { strategy = "kv" }
    local samples = samples_of(on_board(), seen {
      rows = { row("a", 5, 50, { strategy = "kv", limit = 100, limit_used = 60, limit_own = 20,
                                 limit_shared = "all" }) },
    })
    assert.equal(20, value_of(samples, "loam_limit_used_bytes", of_kv))
    assert.equal(60, value_of(samples, "loam_limit_shared_used_bytes", { shared = "all" }))
    samples = samples_of(on_board { limits = { { strategy = "kv", limit_bytes = 10,
      used_bytes = 4, shared = "all", shared_used_bytes = 9 } }, updated_at = 990e9 }, nil)
    assert.equal(4, value_of(samples, "loam_limit_used_bytes", of_kv))
    assert.equal(9, value_of(samples, "loam_limit_shared_used_bytes", of_kv))
  end)

  it("have memory pressure where a watcher looks at it", function()
    local status = on_board()
    assert.is_nil(value_of(samples_of(status), "loam_memory_short"))
    status.pressure = { stalled = 12, short = true, alarms = 3 }
    local samples = samples_of(status)
    assert.equal(0.12, value_of(samples, "loam_memory_stalled_ratio", { pid = "42" }))
    assert.equal(1, value_of(samples, "loam_memory_short", { pid = "42" }))
    assert.equal(3, value_of(samples, "loam_memory_alarms_total", { pid = "42" }))
  end)

  it("tell failures by reason, and what was asked and got", function()
    local got = {
      strategy = "near", failed = 5, at_limit = 2, served_late = 7, live_bytes = 0,
      checked_bytes = 30, untouched_bytes = 0, elsewhere_bytes = 10, unknown_bytes = 0,
      nodes = { { node = 0, bytes = 20 }, { node = 1, bytes = 10 } }, huge_asked_bytes = 8,
      huge_bytes = 6,
    }
    local samples = samples_of(on_board(), seen { got = { got, got } })
    local failed = "loam_strategy_failed_requests_total"
    assert.equal(4, value_of(samples, failed, { strategy = "near", reason = "limit" }))
    assert.equal(6, value_of(samples, failed, { reason = "memory" }))
    assert.equal(20, value_of(samples, "loam_node_bytes", { strategy = "near", node = "1" }))
    assert.equal(20, value_of(samples, "loam_placement_elsewhere_bytes"))
    assert.equal(16, value_of(samples, "loam_huge_asked_bytes"))
    assert.equal(12, value_of(samples, "loam_huge_got_bytes"))
    assert.equal(14, value_of(samples, "loam_strategy_late_requests_total"))
  end)

  it("show a refused policy until another one is loaded, also one with the old hash", function()
    local refused = { last = { ok = false, at = 9e9, error = "no" }, refused_hash = ("b"):rep(16) }
    local samples = samples_of(on_board(refused), seen())
    assert.equal(0, value_of(samples, "loam_policy_last_load_successful"))
    assert.equal(1, value_of(samples, "loam_policy_refused_info", { hash = ("b"):rep(16) }))
    assert.equal(1, value_of(samples, "loam_policy_seen_info", { hash = ("b"):rep(16) }))
    local latest = { number = 2, hash = ("c"):rep(16), at = 1 }
    samples = samples_of(on_board { latest = latest }, seen())
    assert.equal(1, value_of(samples, "loam_policy_last_load_successful"))
    assert.equal(0, #find(samples, "loam_policy_refused_info"))
    assert.equal(1, value_of(samples, "loam_policy_seen_info", { hash = ("c"):rep(16) }))
  end)

  it("of a process that cannot be read are those of its board", function()
    local limits = { { strategy = "small", limit_bytes = 10, used_bytes = 9 } }
    local uses = {
      { strategy = "small", live_bytes = 5, held_bytes = 8, small_blocks = 1, failed = 2 },
      { strategy = "small", live_bytes = 1, held_bytes = 8, small_blocks = 1, failed = 1 },
      { strategy = "foreign", held_bytes = 0, small_blocks = 0, failed = 1 },
    }
    local status = on_board { limits = limits, strategies = uses, updated_at = 990e9 }
    local samples = samples_of(status, nil)
    assert.equal(6, value_of(samples, "loam_board_live_bytes"))
    assert.equal(16, value_of(samples, "loam_board_held_bytes", { strategy = "small" }))
    assert.equal(3, value_of(samples, "loam_board_failed_requests_total", { strategy = "small" }))
    assert.equal(10, value_of(samples, "loam_board_age_seconds"))
    assert.equal(0, value_of(samples, "loam_process_readable"))
    assert.equal(9, value_of(samples, "loam_limit_used_bytes", { strategy = "small" }))
    assert.equal(1, value_of(samples, "loam_processes_unreadable"))
    assert.equal(0, #find(samples, "loam_live_bytes"))
  end)
end)

describe("tags beyond --tags", function()
  local function fold(state, rows, most)
    local out, folded = folded_tags.fold(state, rows, most)
    local by_tag = {}
    for _, found in ipairs(out) do by_tag[found.tag] = found end
    return by_tag, folded
  end

  it("share a series, the smallest first", function()
    local rows = { row("big", 100), row("mid", 10, 11), row("tiny", 1, 2), row("other", 5) }
    local by_tag, folded = fold(folded_tags.new(), rows, 1)
    assert.equal(3 - 1, folded)
    assert.equal(100, by_tag.big.live_bytes)
    assert.equal(10 + 1 + 5, by_tag.other.live_bytes)
    assert.equal(11 + 2 + 5, by_tag.other.total_bytes)
    assert.is_nil(by_tag.mid)
  end)

  it("leave the counter of `other` no smaller when a tag gets its own series", function()
    local state = folded_tags.new()
    local by_tag = fold(state, { row("a", 10, 100), row("b", 1, 50) }, 1)
    assert.equal(50, by_tag.other.total_bytes)
    by_tag = fold(state, { row("a", 10, 100), row("b", 20, 80) }, 1)
    assert.equal(80, by_tag.b.total_bytes)
    assert.equal(50, by_tag.other.total_bytes) -- `a` allocated nothing since
    assert.equal(10, by_tag.other.live_bytes)
    by_tag = fold(state, { row("a", 10, 107), row("b", 20, 80) }, 1)
    assert.equal(57, by_tag.other.total_bytes)
  end)

  it("count no less than before, also after figures that were not exact", function()
    local state = folded_tags.new()
    fold(state, { row("a", 10, 100) }, 5)
    assert.equal(100, fold(state, { row("a", 10, 90) }, 5).a.total_bytes)
  end)

  it("are counted by a series", function()
    local rows = {}
    for i = 1, 300 do rows[i] = row("tag" .. i, i) end
    local answers = { boards = { on_board() }, seen = { [42] = seen { rows = rows } } }
    local source = source_of(answers, 20)
    local samples = read_page(pages.get(source, "text"), "text")
    assert.equal(21, #find(samples, "loam_live_bytes"))
    assert.equal(280, value_of(samples, "loam_tags_folded"))
  end)
end)

describe("the readings of loam metrics", function()
  -- Returns a context in which reading process `pid` takes cost[pid] ms, and the list of read
  -- processes.
  local function timed(answers, cost)
    local source, context = source_of(answers)
    local look, read = context.api.look, {}
    context.api.look = function(pid, patience_ms)
      read[#read + 1] = pid
      context.clock = context.clock + math.min(cost[pid] or 0, patience_ms)
      return look(pid)
    end
    return source, context, read
  end

  it("are kept for a second, and rest for a hundred times their duration", function()
    local answers = { boards = { on_board() }, seen = { [42] = seen() } }
    local source, context, read = timed(answers, { [42] = 30 })
    pages.get(source, "text")
    context.clock = context.clock + 900
    pages.get(source, "openmetrics")
    assert.same({ 42 }, read)
    context.clock = context.clock + 1500
    local samples = read_page(pages.get(source, "text"), "text")
    assert.same({ 42 }, read)
    assert.equal(2.4, value_of(samples, "loam_figures_age_seconds"))
    context.clock = context.clock + 1000
    pages.get(source, "text")
    assert.same({ 42, 42 }, read)
  end)

  it("end with the budget, and go on with those that waited", function()
    local other = { other_version = "7-1-2.board", folder = "/run/loam" } -- which is counted alone
    local boards, answers = { [6] = other }, { seen = {} }
    for pid = 1, 5 do
      boards[pid], answers.seen[pid] = on_board { pid = pid }, seen { pid = pid }
    end
    answers.boards = boards
    local source, context, read = timed(answers, { 300, 300, 300, 300, 300 })
    local samples = read_page(pages.get(source, "text", 500), "text")
    assert.same({ 1, 2 }, read)
    assert.equal(5, value_of(samples, "loam_processes"))
    assert.equal(3, value_of(samples, "loam_processes_unreadable"))
    assert.equal(1, value_of(samples, "loam_boards_unreadable"))
    context.clock = context.clock + 1000
    pages.get(source, "text", 500)
    assert.same({ 1, 2, 3, 4 }, read)
  end)

  it("leave out a process that ends while the page is made", function()
    local other = on_board { pid = 43, program = "sleep" }
    local reused = on_board { since_ms = 6 }
    local boards = { one_by_one = { { on_board(), other }, { reused, other } } }
    local context = canned.new({ boards = boards, seen = { [42] = seen(), [43] = seen() } })
    local list = collector.collect(collector.new(context, 200), 5000)
    assert.equal(1, #list)
    assert.equal(43, list[1].status.pid)
  end)

  it("are of this machine's process, not of a container's with its id", function()
    local inside = on_board { state = "unknown", program = "inside", since_ms = 9 }
    local source = source_of({ boards = { on_board(), inside }, seen = { [42] = seen() } })
    local samples = read_page(pages.get(source, "text"), "text")
    assert.equal(1, value_of(samples, "loam_process_readable", { program = "python3" }))
    assert.equal(1, value_of(samples, "loam_processes"))
  end)

  it("never have the memory of a process in another PID namespace", function()
    local source, _, read = timed({ boards = { on_board { state = "unknown" } } }, {})
    pages.get(source, "text")
    assert.same({}, read)
  end)

  it("skip a board that is no JSON, and figures that are none", function()
    local context = canned.new({ boards = { "{broken", on_board() } })
    context.api.look = function() return "{]" end
    local samples = read_page(pages.get(pages.new(context, 200), "text"), "text")
    assert.equal(0, value_of(samples, "loam_process_readable"))
  end)
end)

describe("the format of the page", function()
  it("is the one that the client prefers", function()
    local prometheus = "application/openmetrics-text;version=1.0.0,"
      .. "application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,"
      .. "*/*;q=0.1"
    assert.equal("openmetrics", accept.format(prometheus))
    assert.equal("openmetrics", accept.format("Application/OpenMetrics-Text; charset=utf-8"))
    assert.equal("text", accept.format("text/plain, application/openmetrics-text;q=0.5"))
    assert.equal("text", accept.format("application/openmetrics-text;q=0, */*"))
    assert.equal("text", accept.format("application/openmetrics-text;version=2.0.0"))
    assert.equal("text", accept.format("*/*"))
    assert.equal("text", accept.format(""))
    assert.equal("text", accept.format(nil))
    assert.equal("text", accept.format(";;q=x,,="))
  end)

  it("is what HTTP answers with", function()
    local source = source_of({})
    local function ask(path, more)
      return http.answer(source, with({ method = "GET", path = path }, more))
    end
    local status, content_type, text = ask("/metrics", { accept = "application/openmetrics-text" })
    assert.equal(200, status)
    assert.matches("openmetrics-text; version=1.0.0", content_type, 1, true)
    assert.matches("# EOF\n$", text)
    assert.matches("version=0.0.4", select(2, ask("/metrics", { format = "text" })), 1, true)
    assert.equal(400, (ask("/metrics", { format = "xml" })))
    assert.equal(200, (ask("/")))
    assert.equal(404, (ask("/metrics/")))
    assert.equal(405, (ask("/metrics", { method = "POST" })))
  end)
end)

describe("loam metrics", function()
  it("prints one page in the text format", function()
    local status, context = canned.run("metrics", { boards = { on_board() },
      seen = { [42] = seen() } })
    assert.equal(0, status)
    assert.equal(1, value_of(read_page(context.out, "text"), "loam_processes"))
  end)

  it("shows no control characters of tags on a terminal", function()
    local answers = { boards = { on_board() },
                      seen = { [42] = seen { rows = { row("\27[2J", 1) } } } }
    for is_terminal, tag in pairs { [false] = 'tag="\27[2J"', [true] = 'tag="\\027[2J"' } do
      local _, context = canned.run("metrics", answers, nil, nil, function(context)
        context.terminal = is_terminal
      end)
      assert.matches(tag, context.out, 1, true)
    end
  end)

  it("names a wrong argument", function()
    local function refuses(args, words)
      local status, context = canned.run("metrics " .. args, {})
      assert.equal(2, status)
      assert.matches(words, context.err, 1, true)
    end
    refuses("--listen 9464", "'9464' is not an address")
    refuses("--listen a:b", "'a:b' is not an address")
    refuses("--listen h:65536", "'h:65536' is not an address")
    refuses("--listen h:1 --textfile d", "cannot be used together")
    refuses("--every 1s", "--every needs --textfile")
    refuses("--textfile d --every 10ms", "the shortest time is 100 ms")
    refuses("--tags many", "'many' is not a whole number")
  end)

  it("says which package --listen needs", function()
    local open = http.open
    http.open = function() return nil, "--listen needs it, Debian package libmicrohttpd12" end
    local status, context = canned.run("metrics --listen :0", {})
    http.open = open
    assert.equal(1, status)
    assert.matches("Debian package libmicrohttpd12", context.err, 1, true)
  end)

  local function temporary()
    local path = os.tmpname()
    os.remove(path)
    assert(os.execute("mkdir " .. path) == 0)
    return path
  end

  it("writes the file of node_exporter, and removes it at the end", function()
    local folder = temporary()
    local context = canned.new({ boards = { on_board() }, seen = { [42] = seen() } })
    local waits, texts = 0, {}
    context.posix.wait = function(ms)
      waits = waits + 1
      context.clock = context.clock + math.max(ms, 1000)
      local file = io.open(folder .. "/loam.prom")
      if file then
        texts[#texts + 1] = file:read("*a")
        file:close()
      end
      return waits == 3
    end
    local main = require("loam.command").main
    assert.equal(0, main({ "metrics", "--textfile", folder .. "/" }, context))
    assert.equal(2, #texts)
    read_page(texts[2], "text")
    assert.equal(0, os.execute("rmdir " .. folder)) -- no file is left
  end)

  it("says once that a later page cannot be written, and goes on", function()
    local folder = temporary()
    local context = canned.new({ boards = { on_board() }, seen = { [42] = seen() } })
    local steps = {
      function() end, -- before the first page
      function() assert(os.execute("rm -r " .. folder) == 0) end,
      function() end,
      function() assert(os.execute("mkdir " .. folder) == 0) end,
      function() assert(io.open(folder .. "/loam.prom")):close() end,
    }
    context.posix.wait = function()
      table.remove(steps, 1)()
      return #steps == 0
    end
    local main = require("loam.command").main
    assert.equal(0, main({ "metrics", "--textfile", folder }, context))
    assert.equal("loam metrics: cannot write the page, the old one stays: " .. folder
      .. "/loam.prom.4242.new: No such file or directory\n", context.err)
    assert.equal(0, os.execute("rmdir " .. folder))
  end)

  it("says why the file cannot be written", function()
    local status, context = canned.run("metrics --textfile /nowhere/at/all", {})
    assert.equal(1, status)
    assert.matches("cannot write the page: /nowhere/at/all/loam.prom.4242.new: No such file",
      context.err, 1, true)
  end)
end)
