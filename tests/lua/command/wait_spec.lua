-- wait_spec.lua - `loam wait`, and the wait of `loam reload`, with boards of canned rows.

local command = require("loam.command")
local json = require("loam.report.json")
local canned_context = require("canned_context")
local units = require("loam.command.units")

local run = canned_context.run

local NEW, OLD = "00000000000000aa", "00000000000000bb"

-- Returns the row of a process that obeys OLD and follows a board, with these changes.
local function row(pid, changes)
  local made = {
    pid = pid, program = "python3", loam = "1.0.0", generation = 1, hash = OLD, path = "/p.lua",
    watching = true, last = { ok = true, at = 1, error = "" }, state = "running", since_ms = 5,
    published = 1, latest = { number = 1, hash = OLD, at = 1 },
  }
  for key, value in pairs(changes or {}) do made[key] = value end
  return made
end

local function obeys(pid) return row(pid, { hash = NEW }) end

local function sleeps(pid) return row(pid, { latest = { number = 2, hash = NEW, at = 2 } }) end

local function refuses(pid)
  return row(pid, { refused_hash = NEW, last = { ok = false, at = 2, error = "/p.lua:4: a\n  b" } })
end

-- Runs `loam wait --hash NEW WORDS` with these rows on all boards. With `one_by_one`, each list of
-- rows is the result of one read, and the last list stays.
local function wait(words, rows, one_by_one)
  return run("wait --hash " .. NEW .. " " .. words,
    { boards = one_by_one and { one_by_one = rows } or rows })
end

describe("loam wait", function()
  it("compares with the text in a manifest, and not with the manifest", function()
    local answers = {
      files = { ["cm.yaml"] = "kind: ConfigMap\ndata:\n  a.lua: |\n    return 1\n" },
      text_hashes = { ["return 1\n"] = NEW }, boards = { obeys(7) },
    }
    local status, context = run("wait --policy cm.yaml", answers)
    assert.equal(0, status)
    assert.equal("1 program obeys " .. NEW .. "\n", context.out)
    answers.files["cm.yaml"] = "kind: Pod\n"
    status, context = run("wait --policy cm.yaml", answers)
    assert.equal(2, status)
    assert.matches("cm.yaml: it has no ConfigMap", context.err, 1, true)
  end)

  it("ends with 2 for arguments that do not fit", function()
    for args, words in pairs {
      [""] = "one of --policy FILE and --hash H is needed",
      ["--policy p.lua --hash " .. NEW] = "--policy and --hash do not go together",
      ["--policy p.lua"] = "p.lua: No such file or directory",
      ["--policy="] = "--policy: the path is empty",
      ["--followers --hash " .. NEW] = "--followers needs --policy FILE",
      ["--followers --all --policy /p.lua"] = "--followers does not go together with --all",
      ["--followers --policy cm.yaml"] = "no program follows a manifest",
      ["--hash 12"] = "'12' is not 16 hexadecimal digits",
      ["--hash 00000000000000ag"] = "is not 16 hexadecimal digits",
      ["--hash " .. NEW .. " --timeout 5x"] = "'5x' is not a time; write 60s, 500ms, 2m or 1h",
      ["--hash " .. NEW .. " --timeout -1s"] = "'-1s' is not a time",
      ["--hash " .. NEW .. " --timeout 25h"] = "25h is more than 24h, the longest time",
      ["--hash " .. NEW .. " --pid"] = "--pid needs a value",
      ["--hash " .. NEW .. " --pid x"] = "'x' is not a process id",
      ["--hash " .. NEW .. " --pid 0"] = "'0' is not a process id",
      ["--hash " .. NEW .. " --all --pid 7"] = "--all and process ids do not go together",
      ["--hash " .. NEW .. " --pid 7"] = "no process 7 runs; `loam ps` lists programs",
    } do
      local status, context = run("wait " .. args)
      assert.equal(2, status, args)
      assert.matches(words, context.err, 1, true)
      assert.equal("", context.out)
    end
  end)

  it("does not wait for a thread, which never obeys", function()
    local status, context = run("wait --hash " .. NEW .. " --pid 42",
      { files = { ["/proc/42/status"] = "Name:\ta\nTgid:\t7\n" } }, nil, nil, function(context)
        context.exists["/proc/42"] = true
      end)
    assert.equal(2, status)
    assert.matches("loam wait: 42 is a thread of process 7; name the process", context.err, 1, true)
  end)

  it("reads times", function()
    for text, ms in pairs { ["0"] = 0, ["60"] = 60000, ["60s"] = 60000, ["500ms"] = 500,
                            ["1.5s"] = 1500, ["2m"] = 120000, ["1h"] = 3600000 } do
      assert.equal(ms, units.parse_time(text), text)
    end
    for _, text in ipairs { "", "s", "-1s", "1 s", "1e3", "5x", "1d", "nan", "0x1" } do
      assert.is_nil(units.parse_time(text), text)
    end
  end)

  it("ends with 0 when all obey", function()
    local status, context = wait("", { obeys(7), obeys(8), row(9, { state = "ended" }) })
    assert.equal(0, status)
    assert.equal("2 programs obey " .. NEW .. "\n", context.out)
    assert.equal("", context.err)
    status, context = run("wait --policy p.lua", { boards = { obeys(7) },
                                                   hashes = { ["p.lua"] = NEW } })
    assert.equal(0, status)
    assert.equal("1 program obeys " .. NEW .. "\n", context.out)
  end)

  it("ends with 0 and a line without a program", function()
    local status, context = wait("", {})
    assert.equal(0, status)
    assert.equal("no program of yours runs under loam\n", context.err)
  end)

  it("does not call programs settled that it cannot read, as they have another version", function()
    local other = { other_version = "7-1-2.board", folder = "/run/loam" }
    local status, context = wait("--timeout 50ms", { obeys(8), other })
    assert.equal(3, status)
    assert.equal("loam wait: /run/loam/7-1-2.board: programs on this board have another version of "
      .. "loam than this command, 1.2.3, and cannot be waited for until they are started again\n"
      .. "loam wait: after 0.1 s, 1 of 1 program obeys " .. NEW
      .. "; the programs on 1 board of other versions cannot be read\n", context.err)
    assert.equal(50, context.clock)
    context = select(2, wait("--timeout 0 --json", { obeys(8), other }))
    assert.matches('"other_boards":["/run/loam/7-1-2.board"]', context.out, 1, true)
    -- Where processes are named, no other process counts.
    assert.equal(0, (wait("8", { obeys(8), other })))
    -- It waits until the programs are started again.
    assert.equal(0, (wait("", { { other }, { other }, { obeys(8) } }, true)))
  end)

  it("says of a process that was named that it has another version", function()
    local status, context = run("wait --hash " .. NEW .. " --timeout 0 42", {
      boards = { { other_version = "7-1-2.board", folder = "/run/loam" } },
      files = { ["/proc/42/maps"] = "9-a rw-s 0 0 9 /run/loam/7-1-2.board\n" },
    }, nil, nil, function(context) context.exists["/proc/42"] = true end)
    assert.equal(3, status)
    assert.matches("python3 (42) has not seen it: its board /run/loam/7-1-2.board has another "
      .. "version of loam than this command, 1.2.3\n", context.err, 1, true)
  end)

  it("waits for a program of another container that has the process id of the command", function()
    assert.equal(3, (wait("--timeout 0", { row(4242, { state = "unknown", program = "host" }) })))
    -- Under `docker exec`, this row is the command itself.
    assert.equal(0, (wait("--timeout 0", { row(4242, { state = "unknown", program = "loam" }) })))
  end)

  it("looks until all obey, and rests at most 100 ms", function()
    local looks = {}
    for i = 1, 10 do looks[i] = { row(7), obeys(8) } end
    looks[11] = { obeys(7), obeys(8) }
    local status, context = wait("", looks, true)
    assert.equal(0, status)
    assert.equal(10 * 20, context.clock)
  end)

  it("names each that refused it, with the first line of its error", function()
    local status, context = wait("", { refuses(7), obeys(8), refuses(9) })
    assert.equal(1, status)
    assert.equal("python3 (7) refused it: /p.lua:4: a\npython3 (9) refused it: /p.lua:4: a\n"
      .. "loam wait: 2 of 3 programs refused " .. NEW .. "\n", context.err)
    assert.equal("", context.out)
  end)

  it("says in one line what holds for more than eight programs", function()
    local rows = {}
    for pid = 1, 9 do rows[pid] = refuses(pid) end
    for pid = 11, 19 do rows[#rows + 1] = sleeps(pid) end
    rows[#rows + 1] = refuses(20)
    rows[#rows].last = { ok = false, at = 2, error = "/q.lua:1: z" }
    local _, context = wait("--timeout 0", rows)
    assert.equal("python3 (1) and 8 others refused it: /p.lua:4: a\n"
      .. "python3 (20) refused it: /q.lua:1: z\n"
      .. "published, not yet obeyed by python3 (11) and 8 others, which have requested no memory "
      .. "since\nloam wait: 10 of 19 programs refused " .. NEW .. "\n", context.err)
    local old = {}
    for pid = 1, 9 do old[pid] = row(pid) end
    assert.matches("python3 (1) and 8 others have not seen it: they have hash " .. OLD,
      select(2, wait("--timeout 0", old)).err, 1, true)
    table.remove(rows, 1)
    assert.matches("python3 (9) refused it", select(2, wait("--timeout 0", rows)).err, 1, true)
  end)

  it("gives the others a second when one has refused it", function()
    local status, context = wait("", { refuses(7), row(8) })
    assert.equal(1, status)
    assert.equal(1000, context.clock)
    assert.matches("python3 (8) has not seen it: it has hash " .. OLD, context.err, 1, true)
  end)

  it("ends with 3 at the end of the time, and says why each has not seen it", function()
    local status, context = wait("--timeout 200ms", {
      obeys(6), row(7), row(8, { state = "stopped" }), row(9, { state = "unknown" }),
      row(10, { watching = false }), row(11, { generation = 0, path = "" }),
      row(12, { last = { ok = false, at = 2, error = "/p.lua: others can write it\n  b" } }),
    })
    assert.equal(3, status)
    assert.equal(200, context.clock)
    for _, words in ipairs {
      "(7) has not seen it: it has hash " .. OLD .. " of /p.lua\n",
      "(8) has not seen it: it is stopped\n", "(9) has not seen it: it is in another PID namespace",
      "(10) has not seen it: nothing watches its file /p.lua; `loam reload 10` loads it\n",
      "(11) has not seen it: it has the built-in default\n",
      "(12) has not seen it: its latest load was refused: /p.lua: others can write it\n",
      "loam wait: after 0.2 s, 1 of 7 programs obey " .. NEW .. "\n",
    } do
      assert.matches(words, context.err, 1, true)
    end
  end)

  it("names one program in the singular", function()
    local _, context = wait("--timeout 200ms", { row(7) })
    assert.matches("after 0.2 s, 0 of 1 program obeys " .. NEW .. "\n", context.err, 1, true)
  end)

  it("does not count a published policy, unless that is enough", function()
    local status, context = wait("--timeout 0", { obeys(7), sleeps(8) })
    assert.equal(3, status)
    assert.matches("published, not yet obeyed by python3 (8), which has requested no memory since",
      context.err, 1, true)
    status, context = wait("--timeout 0 --published", { obeys(7), sleeps(8) })
    assert.equal(0, status)
    assert.equal("2 programs obey " .. NEW .. "; 1 of them with the next request for memory\n",
      context.out)
  end)

  it("knows what an old refusal and an old publication are worth", function()
    for _, each in ipairs {
      { 0, { hash = NEW, refused_hash = NEW } }, -- a second load of the live policy failed
      { 3, { refused_hash = OLD } },
      -- NEW was published a second time
      { 3, { refused_hash = NEW, latest = { number = 2, hash = NEW, at = 2 } } },
      { 3, { hash = NEW, generation = 0 } },
      { 1, { refused_hash = NEW, latest = { number = 1, hash = NEW, at = 2 } } },
    } do
      local last = { ok = false, at = 1, error = "x" }
      local changes = each[2]
      changes.last = last
      local status = wait("--timeout 0", { row(7, changes) })
      assert.equal(each[1], status, json.encode(changes))
    end
  end)

  it("waits for those that are named alone", function()
    assert.equal(0, (wait("--pid 7 8 --pid 7", { obeys(7), obeys(8), row(9) })))
    assert.equal(0, (wait("7", { obeys(7), row(9) })))
    assert.equal(3, (wait("--timeout 0 --pid 7 --pid 9", { obeys(7), row(9) })))
  end)

  it("leaves out those that end, and includes those that start", function()
    local status, context = wait("", { { row(7), obeys(8) }, { obeys(8) } }, true)
    assert.equal(0, status)
    assert.equal("1 program obeys " .. NEW .. "\n", context.out)
    assert.equal(3, (wait("--timeout 40ms", { { row(7) }, { obeys(7), row(8) } }, true)))
    local looks = { { row(7), row(8) }, { row(7), row(8) }, { obeys(8) } }
    status, context = wait("7 8", looks, true)
    assert.equal(0, status)
    assert.equal("process (7) has ended\n", context.err)
  end)

  it("ends with 3 when all that were named have ended", function()
    local looks = { { row(7) }, { row(7) }, { row(7, { state = "ended" }) } }
    local status, context = wait("7", looks, true)
    assert.equal(3, status)
    assert.equal("python3 (7) has ended\nloam wait: all processes that were named have ended\n",
      context.err)
  end)

  it("waits for a process that has no place on a board yet", function()
    local context = canned_context.new { boards = {} }
    context.exists["/proc/7"] = true
    local args = { "wait", "--hash", NEW, "--timeout", "0", "7" }
    assert.equal(3, command.main(args, context))
    assert.matches("python3 (7) has not seen it: it has no place on a board\n", context.err, 1,
      true)
  end)

  it("shows its progress on one line of a terminal, and removes it", function()
    local context = canned_context.new { boards = { one_by_one = {
      { row(7), obeys(8) }, { obeys(7), obeys(8) } } } }
    context.terminal = true
    assert.equal(0, command.main({ "wait", "--hash", NEW }, context))
    local line = "1 of 2 programs obey, after 0 s"
    assert.equal("\r" .. line .. "\r" .. (" "):rep(#line) .. "\r", context.err)
    -- It says why it waits although all programs that it can read obey.
    local other = { other_version = "7-1-2.board", folder = "/run/loam" }
    context = canned_context.new { boards = { one_by_one = { { obeys(7), other }, { obeys(7) } } } }
    context.terminal = true
    assert.equal(0, command.main({ "wait", "--hash", NEW }, context))
    assert.matches("\r1 of 1 program obeys, 1 board cannot be read, after 0 s\r", context.err, 1,
      true)
  end)

  it("ends with 130 at Ctrl-C, and at another signal with its number", function()
    for signal, wanted in pairs { [2] = 130, [15] = 143, [1] = 129 } do
      local context = canned_context.new { boards = { row(7) } }
      context.waits = { false, signal }
      assert.equal(wanted, command.main({ "wait", "--hash", NEW }, context))
      assert.matches("python3 (7) has not seen it", context.err, 1, true)
    end
  end)

  it("answers in JSON", function()
    local status, context = wait("--timeout 0 --json",
      { obeys(7), refuses(8), row(9), sleeps(10) })
    assert.equal(1, status)
    local answer = json.decode(context.out)
    assert.equal("wait", answer.verb)
    assert.is_false(answer.ok)
    assert.is_true(answer.timed_out)
    assert.equal("1 of 4 programs refused " .. NEW, answer.error)
    assert.same({ { pid = 7, program = "python3", state = "running" } }, answer.obeyed)
    assert.same({ { pid = 8, program = "python3", state = "running", error = "/p.lua:4: a\n  b" } },
      answer.refused)
    assert.same({ 9, 10 }, { answer.unseen[1].pid, answer.published[1].pid })
    assert.matches('^{"verb":"wait","version":1,"ok":false,', context.out)
    assert.equal("", context.err)
  end)
end)

describe("loam reload", function()
  it("waits a moment for a program that has just started", function()
    local placed = row(42, { board = "/run/7.board", published = 2 })
    local context = canned_context.new { publishes = 2,
      boards = { one_by_one = { {}, {}, {}, { placed } } } }
    context.exists["/proc/42"] = true
    assert.equal(0, command.main({ "reload", "42", "new.lua" }, context))
    assert.equal("live: generation 1\n", context.out)
    context = canned_context.new { publishes = 2, boards = {} }
    context.exists["/proc/42"] = true
    assert.equal(1, command.main({ "reload", "42", "new.lua" }, context))
    assert.is_true(context.clock >= 500 and context.clock < 600)
  end)

  it("waits two seconds for a process to obey, however long a look takes", function()
    for _, look_ms in ipairs { 0, 300 } do
      local status, context = run("reload 42 new.lua", { look_ms = look_ms, publishes = 2,
        boards = { row(42, { board = "/run/7.board" }) } })
      assert.equal(0, status)
      assert.matches("obeys with its next request for memory\n", context.out, 1, true)
      assert.is_true(context.clock >= 2000 and context.clock < 3200, context.clock)
    end
  end)

  it("ends with the number of a signal, and says what is published", function()
    local context = canned_context.new { publishes = 2,
      boards = { row(42, { board = "/run/7.board" }) } }
    context.waits = { false, 15 }
    assert.equal(143, command.main({ "reload", "42", "new.lua" }, context))
    assert.equal("loam: the policy is published, and the wait for its result was stopped\n",
      context.err)
    context = canned_context.new { publishes = 2, boards = {} }
    context.exists["/proc/42"], context.waits = true, { true }
    assert.equal(130, command.main({ "reload", "42", "new.lua" }, context))
    assert.matches("nothing is published", context.err, 1, true)
  end)

  it("says that another policy was published after its own", function()
    local later = { number = 3, hash = NEW, at = 3 }
    local words = ("overtaken: another policy, with hash %s, was published after this one\n")
      :format(NEW)
    for _, published in ipairs { 1, 3 } do -- the process has not obeyed the other one, or has
      local there = row(42, { board = "/run/7.board", published = published, latest = later })
      local answers = { publishes = 2, boards = { there }, hashes = { ["/cwd/p.lua"] = OLD } }
      local status, context = run("reload 42 p.lua", answers)
      assert.same({ 3, "", words }, { status, context.out, context.err })
      status, context = run("reload 42 p.lua --json", answers)
      local answer = json.decode(context.out)
      assert.same({ 3, false, true }, { status, answer.ok, answer.overtaken })
    end
    local obeyed = row(42, { board = "/run/7.board", published = 2, latest = later })
    assert.equal(0, (run("reload 42 p.lua", { publishes = 2, boards = { obeyed } })))
  end)

  it("is not overtaken by a later publication of the text that its file has", function()
    local later = { number = 3, hash = NEW, at = 3 }
    local rows = {}
    for i = 1, 3 do
      rows[i] = { row(42, { board = "/run/7.board", published = i, generation = i,
                            latest = later }) }
    end
    local answers = { publishes = 2, hashes = { ["/cwd/p.lua"] = NEW },
                boards = { one_by_one = { rows[1], rows[1], rows[3] } } }
    local status, context = run("reload 42 p.lua", answers)
    assert.same({ 0, "live: generation 3\n" }, { status, context.out })
  end)
end)
