-- cli_spec.lua - the verbs of the command against an engine of canned answers.

local json = require("loam.report.json")
local canned_context = require("canned_context")
local hosts = require("loam.command.hosts")

local run = canned_context.run

local REFUSED = {
  verb = "check", policy = "p.lua", ok = false,
  errors = { { file = "p.lua", line = 3, class = "name", reason = "there is no b", source = "b()",
               suggestion = "did you mean 'a'?" } },
}

describe("loam", function()
  it("ends with 2 and a suggestion for what it does not know", function()
    for args, words in pairs {
      ["chekc p.lua"] = "unknown command 'chekc'; did you mean 'check'?",
      ["check p.lua --jsno"] = "unknown option '--jsno'; did you mean '--json'?",
      ["check"] = "POLICY is missing",
      ["plan p.lua"] = "--tag T is missing",
      ["compile - -o x.image"] = "it reads no standard input; name a file",
      ["reload 42 -"] = "loam reload: it reads no standard input; name a file",
      ["run --policy - true"] = "loam run: it reads no standard input; name a file",
      ["wait --policy -"] = "loam wait: it reads no standard input; name a file",
      ["plan p.lua q.lua --tag x"] = "'q.lua' is one argument too many",
      ["explain p.lua --tag x --size 12x"] = "--size: '12x' is not a size",
      ["explain p.lua --tag x --size -1"] = "--size: '-1' is not a size",
      ["explain p.lua --tag x --size 1.1MiB"] = "'1.1MiB' is no whole number of bytes; "
        .. "write 1153434",
      ["explain p.lua --tag x --size 1 --align 24"] = "24 is not a power of two",
      ["explain p.lua --tag x --size 1 --node -1"] = "--node: '-1' is not a whole number",
      ["explain p.lua --tag x"] = "--size N is missing",
      ["explain p.lua --tag x --tag y --size 1"] = "--tag is given twice",
      ["explain p.lua --tag x --size 1 --node-free 0=1 --node-free 00=2"] =
        "--node-free: number 0 is given twice",
      ["explain p.lua --tag"] = "--tag needs a value",
      ["check --json=1 p.lua"] = "--json takes no value",
      ["explain p.lua --size 1 --tag " .. ("x"):rep(256)] = "256 bytes; a tag has at most 255",
      ["explain p.lua --tag x --size 200TiB"] = "200TiB is more than 128 TiB",
      ["explain p.lua --tag x --size 99999999999999999999"] = "99999999999999999999 is more than",
      ["rebalance 42 --rate 0"] = "--rate: 0 is less than 1, the least",
      ["demote 42 --tag x --rate 0"] = "--rate: 0 is less than 1, the least",
      ["explain p.lua --tag x --size 1 --node 64"] = "'64' is not a whole number from 0 to 63",
      ["run --policy= prog"] = "--policy: the path is empty",
      ["status abc"] = "'abc' is not a process id",
      ["status 99999999999"] = "is not a process id",
      ["--verison"] = "unknown option '--verison'; did you mean '--version'?",
      ["-z"] = "unknown option '-z'",
      ["version"] = "unknown command 'version'; did you mean '--version'?",
      [""] = "a command is missing",
      ["run --policy p.lua"] = "COMMAND is missing",
    } do
      local status, context = run(args)
      assert.equal(2, status, args)
      assert.matches(words, context.err, 1, true)
      assert.matches("Try `loam", context.err, 1, true)
      assert.equal("", context.out)
    end
  end)

  it("lets no control character of an argument reach the terminal", function()
    for _, args in ipairs { "explain p.lua --tag x --size \27[31m", "check -\27[31m",
                            "status 1 \27[31m", "explain p.lua --tag x --size 1 --\27[31m" } do
      local _, context = run(args)
      assert.matches("\\027[31m", context.err, 1, true)
      assert.is_nil(context.err:find("\27", 1, true))
    end
  end)

  it("explains each command with an example", function()
    for _, verb in ipairs { "check", "explain", "plan", "diff", "test", "compile", "run", "ps",
                            "status", "stats", "reload", "wait", "rebalance", "demote", "sleep",
                            "wake", "doctor", "schema" } do
      local status, by_option = run(verb .. " --help")
      assert.equal(0, status)
      assert.matches("Usage: loam " .. verb, by_option.out, 1, true)
      assert.matches("\nExample:\n  $ loam " .. verb, by_option.out, 1, true)
      assert.equal(by_option.out, select(2, run("help " .. verb)).out)
      for line in by_option.out:gmatch("[^\n]+") do assert.is_true(#line <= 100, line) end
    end
    assert.matches("loam COMMAND", select(2, run("--help")).out, 1, true)
  end)

  it("tells its version", function()
    local status, context = run("--version")
    assert.equal(0, status)
    assert.equal("loam 1.2.3\n", context.out)
  end)

  it("shows a fault of its own with a trace, and ends with 70", function()
    local status, context = run("plan p.lua --tag x", { plan = { ok = true, rows = 7 } })
    assert.equal(70, status)
    assert.matches("an error in loam itself", context.err)
  end)

  it("says in a line that memory is short, also where a verb raises that error again", function()
    local status, context = run("ps", {}, nil, nil, function(context)
      context.api.boards = function() error("not enough memory", 0) end
    end)
    assert.equal(1, status)
    assert.equal("loam: not enough memory\n", context.err)
  end)

  it("ends with 1 when the engine does not answer in JSON", function()
    local status, context = run("plan p.lua --tag x", { plan = "{" })
    assert.equal(1, status)
    assert.matches("not JSON", context.err)
  end)
end)

describe("loam check", function()
  it("shows faults as a compiler does, and ends with 1", function()
    local status, context = run("check p.lua", { check = REFUSED })
    assert.equal(1, status)
    assert.equal("p.lua:3: name: there is no b\n    3 | b()\n  hint: did you mean 'a'?\n",
      context.err)
  end)

  it("passes every tag on", function()
    local _, context = run("check p.lua --tag a.b --tag c", { check = REFUSED })
    assert.equal("verb check\ntag a.b\ntag c", context.queries[1])
  end)

  it("sums up a policy that is taken", function()
    local status, context = run("check p.lua", { check = {
      verb = "check", policy = "p.lua", ok = true, name = "prod", tests = 2, always = 1,
      errors = {},
      warnings = { { file = "p.lua", line = 7, class = "machine", reason = "switched off here" } },
      tags = { { tag = "", leaves = 1 }, { tag = "a", leaves = 3 } },
      strategies = { { name = "big", kind = "host", align = 4096, huge = "thp", zero = true } },
    } })
    assert.equal(0, status)
    assert.equal("p.lua:7: warning: machine: switched off here\n", context.err)
    assert.equal("p.lua: ok: \"prod\", 1 strategy, 2 classes with 4 leaves, 2 tests, 1 invariant\n"
      .. "STRATEGY  WHAT\nbig       host: align 4 KiB, huge thp, zero\n", context.out)
  end)

  it("reports a file that cannot be read in the form of all errors", function()
    local status, context = run("check p.lua --json")
    assert.equal(1, status)
    local answer = json.decode(context.out)
    assert.equal("file", answer.errors[1].class)
    assert.equal("p.lua", answer.errors[1].file)
    assert.is_false(answer.ok)
  end)

  it("checks several policies and ends with 1 if one is refused", function()
    local status, context = run("check p.lua q.lua", { check = REFUSED })
    assert.equal(1, status)
    assert.equal(2, #context.queries)
  end)
end)

describe("loam explain", function()
  local ANSWER = {
    tag = "a", size = 8388608, strategy = { name = "big", kind = "host", huge = "thp" },
    chain = { "big", "small" }, line = 10, generation = 1,
    path = { { line = 9, condition = "req.size >= 4096", holds = true } },
  }

  it("asks with every input it was given", function()
    local _, context = run("explain p.lua --tag a --size 8MiB --align 4K --zero --node 1 --live 1G"
      .. " --device -1 --module m --pressure 40", { explain = ANSWER })
    assert.equal("verb explain\ntag a\nsize 8388608\nalign 4096\nnode 1\nlive 1073741824\n"
      .. "device -1\nmodule m\npressure 40\nzero 1", context.queries[1])
  end)

  it("names the strategy and the lines that decided", function()
    local status, context = run("explain p.lua --tag a --size 8MiB", { explain = ANSWER })
    assert.equal(0, status)
    assert.matches("a, 8 MiB: big, else small\n  big is host: huge thp\nbecause\n", context.out,
      1, true)
    assert.matches("req.size >= 4096 was true", context.out, 1, true)
  end)

  it("passes the engine's own JSON on", function()
    local _, context = run("explain p.lua --tag a --size 1 --json", { explain = '{"tag":"a"}\n' })
    assert.equal('{"verb":"explain","version":1,"ok":true,"tag":"a"}\n', context.out)
  end)

  it("does not mix a batch with a single request", function()
    local status, context = run("explain p.lua --batch f --tag a")
    assert.equal(2, status)
    assert.matches("--tag does not go with --batch", context.err, 1, true)
  end)

  it("says when a batch cannot be read", function()
    local status, context = run("explain p.lua --batch /nowhere/f", nil, nil, function()
      return nil, "/nowhere/f: No such file or directory", -1
    end)
    assert.equal(1, status)
    assert.equal("loam: /nowhere/f: No such file or directory\n", context.err)
  end)
end)

describe("loam test", function()
  it("prints TAP", function()
    local status, context = run("test p.lua", { test = {
      ok = false,
      tests = { { n = 1, ok = true, what = "a #1", line = 5 },
                { n = 2, ok = false, what = "b", line = 6, got = "x", expect = "y" } },
      always = { { name = "never", ok = true } },
      coverage = { leaves = 3, covered = 2, missed = { { line = 9, tag = "a", conditions = {
        { line = 8, condition = "req.zero", holds = false } } } } },
      errors = {},
    } })
    assert.equal(1, status)
    assert.equal(table.concat({
      "TAP version 13", "1..3", "ok 1 - a \\#1", "not ok 2 - b", "  ---", "  line: 6", '  got: "x"',
      '  expect: "y"', "  ...", "ok 3 - always: never", "# 2 of 3 leaves are reached by tests",
      "# not reached: line 9, tag a: req.zero was false", "",
    }, "\n"), context.out)
  end)

  it("counts one leaf in the singular", function()
    local _, context = run("test p.lua", { test = {
      ok = true, tests = {}, always = {}, errors = {},
      coverage = { leaves = 1, covered = 1, missed = {} },
    } })
    assert.matches("# 1 of 1 leaf is reached by tests\n", context.out, 1, true)
  end)

  it("writes equal lines about leaves that no test reaches once", function()
    local leaf = { line = 4, tag = "a", conditions = {} }
    local _, context = run("test p.lua", { test = {
      ok = true, tests = {}, always = {}, errors = {}, coverage = { leaves = 3, covered = 0,
        missed = { leaf, { line = 5, tag = "a", conditions = {} }, leaf } },
    } })
    assert.matches("\n# not reached in 2 classes: line 4, tag a\n# not reached: line 5, tag a\n",
      context.out, 1, true)
  end)

  it("writes a policy that is refused as one failed test", function()
    local status, context = run("test p.lua", { test = REFUSED })
    assert.equal(1, status)
    assert.equal("TAP version 13\n1..1\nnot ok 1 - the policy is taken\n", context.out)
    assert.matches("p.lua:3: name", context.err, 1, true)
  end)
end)

describe("loam compile", function()
  it("writes an image and tells its size", function()
    for _, option in ipairs { "-o ", "--output ", "-o", "--output=" } do
      local status, context = run("compile p.lua " .. option .. "p.image",
        { compiled = { 14336, 3 } })
      assert.equal(0, status)
      assert.same({ "p.lua", "p.image" }, context.compiled)
      assert.equal("p.image: 14 KiB, 3 plans\n", context.out)
    end
    local _, context = run("compile --output=p.image p.lua", { compiled = { 1000, 1 } })
    assert.equal("p.image: 1000 B, 1 plan\n", context.out)
  end)

  it("shows why a policy is refused", function()
    local status, context = run("compile p.lua -o p.image",
      { compiled = { nil, "p.lua:3: no", -3 }, check = REFUSED })
    assert.equal(1, status)
    assert.matches("p.lua:3: name: there is no b", context.err, 1, true)
    assert.equal("", context.out)
  end)

  it("says what it cannot read or write", function()
    local status, context = run("compile p.lua -o p.image")
    assert.equal(1, status)
    assert.equal("loam: p.lua: gone\n", context.err)
  end)

  it("writes nothing but the image to standard output", function()
    local status, context = run("compile p.lua -o -", { compiled = { 1000, 1 } })
    assert.equal(0, status)
    assert.same({ "p.lua" }, context.compiled)
    assert.equal("", context.out)
  end)

  it("does not take a manifest, as run and reload do not", function()
    for args, wanted in pairs { ["compile p.yaml -o p.image"] = 1, ["reload 42 p.yml"] = 1,
                                ["run --policy p.yaml -- x"] = 2 } do
      local status, context = run(args)
      assert.equal(wanted, status)
      assert.matches("loam: p.ya?ml: it is a manifest; mount its ConfigMap", context.err)
    end
  end)

  it("needs a file to write", function()
    local status, context = run("compile p.lua")
    assert.equal(2, status)
    assert.matches("--output FILE is missing", context.err, 1, true)
    assert.equal(2, (run("compile p.lua -x p.image")))
  end)
end)

describe("loam ps, status, stats, reload", function()
  local STATUS = {
    pid = 42, program = "python3", loam = "1.0.0", generation = 3, name = "prod",
    path = "/p.lua", hash = "00ff", loaded_at = 940e9, watching = true, loads = 4, refused = 1,
    last = { ok = false, at = 990e9, error = "p.lua:3: name: oops" }, tags_refused = 0, plans = 12,
    sites = 57,
  }

  -- The status of a process on a board: STATUS with these changes.
  local function on_board(changes)
    local row = { state = "running", announced = false, ended_at = 0, since_ms = 5, uid = 1000 }
    for key, value in pairs(STATUS) do row[key] = value end
    for key, value in pairs(changes or {}) do row[key] = value end
    return row
  end

  local PS = '{"verb":"ps","version":1,"ok":true,"programs":['
  local REST = "3  prod    /p.lua  refused\n"

  it("lists the living processes of all boards, with their states", function()
    local status, context = run("ps", { boards = {
      on_board { pid = 43, state = "stopped" }, on_board(), on_board { pid = 44, state = "ended" },
    } })
    assert.equal(0, status)
    assert.equal("PID  PROGRAM  STATE    GENERATION  POLICY  FILE    LAST RELOAD\n"
      .. " 42  python3  running           " .. REST .. " 43  python3  stopped           " .. REST,
      context.out)
    assert.equal("", context.err)
    assert.same({}, context.queries)
  end)

  it("tells that memory is short in the control group", function()
    local pressure = { stalled = 12, short = true, alarms = 1 }
    local _, context = run("status 42", { boards = { on_board { pressure = pressure } } })
    assert.matches("memory    short; 1 alarm; the control group waits for it 12% of the time\n",
      context.out, 1, true)
    pressure = { stalled = 0, short = false, alarms = 2 }
    _, context = run("status 42", { boards = { on_board { pressure = pressure } } })
    assert.matches("memory    not short now; 2 alarms; the control group waits for it 0% of the "
      .. "time\n", context.out, 1, true)
    pressure.alarms = 0
    _, context = run("status 42", { boards = { on_board { pressure = pressure } } })
    assert.not_matches("\nmemory", context.out)
  end)

  it("lists processes that have ended where all are wanted", function()
    local _, context = run("ps --all", { boards = {
      on_board { pid = 44, state = "ended", ended_at = 995e9 },
      on_board { pid = 45, state = "ended", ended_at = 995e9, announced = true },
      on_board { pid = 46, state = "ended" },
    } })
    local gap = (" "):rep(11)
    assert.matches(" 44  python3  ended 5 seconds ago or earlier" .. gap .. REST
      .. " 45  python3  ended 5 seconds ago           " .. gap .. REST
      .. " 46  python3  ended                         " .. gap .. REST, context.out, 1, true)
  end)

  it("shows one row of a process that is on two boards: the living or the newer one", function()
    local old, new = '{"pid":41,"state":"running","since_ms":5}', '{"pid":41,"since_ms":7}'
    local living = '{"pid":42,"state":"running","since_ms":5}'
    local _, context = run("ps --json", { boards = {
      old, new, living, '{"pid":42,"state":"ended","since_ms":7}',
    } })
    assert.equal(PS .. new .. "," .. living .. "]}\n", context.out)
  end)

  it("does not list the command itself", function()
    local other, own = '{"pid":42,"state":"running"}', '{"pid":4242,"state":"running"}'
    local _, context = run("ps --json", { boards = { other, own } })
    assert.equal(PS .. other .. "]}\n", context.out)
  end)

  it("names the boards of other versions of loam, whose programs it cannot list", function()
    local other = { other_version = "7-1-2.board", folder = "/tmp/loam-0" }
    local line = "loam ps: /tmp/loam-0/7-1-2.board: programs on this board have another version of "
      .. "loam than this command, 1.2.3, and are not listed until they are started again\n"
    local status, context = run("ps", { boards = { other, on_board() } })
    assert.equal(0, status)
    assert.equal(line, context.err)
    assert.matches(" 42  python3", context.out, 1, true)
    context = select(2, run("ps --json", { boards = { other } }))
    assert.equal(PS .. '],"other_boards":["/tmp/loam-0/7-1-2.board"]}\n' .. line,
      context.out .. context.err)
    local more = { other_version = "6-1-2.board", folder = "/tmp/loam-0" }
    local elsewhere = { other_version = "7-1-2.board", folder = "/tmp/loam-1" }
    context = select(2, run("ps", { boards = { other, elsewhere, more } }))
    local from = "^loam ps: /tmp/loam%-0/6%-1%-2.board: programs on this and one other board have "
    local to = "\nloam ps: /tmp/loam%-1/7%-1%-2.board: programs on this board have [^\n]*\n$"
    assert.matches(from .. "[^\n]*" .. to, context.err)
  end)

  it("lists none as an empty array", function()
    assert.equal(PS .. "]}\n", select(2, run("ps --json")).out)
  end)

  it("passes the statuses on as they came", function()
    local _, context = run("ps --json", { boards = {
      '{"pid":41,"loaded_at":1763720000123456789}', '{"pid":43}' } })
    assert.equal(PS .. '{"pid":41,"loaded_at":1763720000123456789},{"pid":43}]}\n', context.out)
  end)

  it("takes the only process there is", function()
    local status, context = run("status", { boards = { on_board {
      updated_at = 999e9, limits_left_out = 0,
      limits = { { strategy = "small", limit_bytes = 2 ^ 21, used_bytes = 2 ^ 20 } },
    }, on_board { pid = 44, state = "ended" } } })
    assert.equal(0, status)
    assert.matches("state     running", context.out, 1, true)
    assert.matches("policy    prod, generation 3", context.out, 1, true)
    assert.matches("loaded    1 minute ago, hash 00ff", context.out, 1, true)
    assert.matches("last      refused, 10 seconds ago\n          p.lua:3: name: oops",
      context.out, 1, true)
    assert.matches("limits    small: 1 MiB of 2 MiB", context.out, 1, true)
    assert.matches("as of     1 second ago", context.out, 1, true)
  end)

  it("shows a policy that is published for the process and not yet obeyed", function()
    local latest = { number = 2, hash = "00000000000000ab", at = 990e9 }
    local row = on_board { published = 1, latest = latest }
    local _, context = run("status 42", { boards = { row } })
    assert.matches("published  hash 00000000000000ab, 10 seconds ago; the program obeys it with "
      .. "its next request for memory\n", context.out, 1, true)
    for _, changes in ipairs { { published = 2, latest = latest },
                               { published = 1, latest = latest, state = "ended" } } do
      _, context = run("status 42", { boards = { on_board(changes) } })
      assert.is_nil(context.out:find("published", 1, true))
    end
  end)

  it("shows the last figures of a process that has ended", function()
    local _, context = run("status 42", { boards = {
      on_board { state = "ended", ended_at = 990e9, announced = true } } })
    assert.matches("state     ended 10 seconds ago\n", context.out, 1, true)
  end)

  it("asks a host that is on no board", function()
    local status, context = run("status 42", { [42] = STATUS })
    assert.equal(0, status)
    assert.matches("policy    prod, generation 3", context.out, 1, true)
    assert.same({ "status" }, context.queries)
    status, context = run("status", { boards = { on_board(), on_board { pid = 43 } } })
    assert.equal(2, status)
    assert.matches("loam status 43    # python3", context.err, 1, true)
  end)

  it("asks a host in the folder of its board", function()
    local context = canned_context.new { boards = { on_board { folder = "/run/other" } } }
    context.api.ask = function()
      if context.set.LOAM_CONTROL_DIR == "/run/other" then return '{"pid":42}' end
      return nil, "process 42 cannot be asked by this user: nothing listens at /run/7.sock"
    end
    assert.same({ pid = 42 }, (hosts.ask(context, 42, "stats")))
    context.set = {}
    context.api.ask = function() return nil, "host 42 did not answer within 2000 ms" end
    assert.same({ nil, "python3 (42) did not answer within 2 s" },
      { hosts.ask(context, 42, "stats") })
    assert.equal("", context.err)
    context.files["/proc/42/stat"] = "42 (a) R 1) T 1 42 42"
    assert.same({ nil, "python3 (42) did not answer within 2 s: it is stopped" },
      { hosts.ask(context, 42, "stats", 30000) })
    assert.equal("loam: note: process 42 is stopped; it answers when it goes on\n", context.err)
    assert.is_nil(context.set.LOAM_CONTROL_DIR)
  end)

  it("does not wait for a stopped process without a service", function()
    local row = { pid = 42, program = "python3", state = "stopped", board = "/run/a.board" }
    local context = canned_context.new { boards = { row } }
    context.files["/proc/42/stat"] = "42 (python3) T 1 42 42"
    local _, words = hosts.ask(context, 42, "rebalance", 30000)
    assert.equal("python3 (42) has no service to ask: start it with `loam run --service`", words)
    assert.equal("", context.err)
  end)

  it("says why a process cannot be asked", function()
    local function words(boards, maps, status)
      local context = canned_context.new { boards = boards }
      context.files["/proc/42/status"] = status
      context.exists, context.files["/proc/42/maps"] = { ["/proc/42"] = maps and true }, maps
      local why = "process 42 cannot be asked by this user: nothing listens at /run/42.sock"
      context.api.ask = function() return nil, why end
      return select(2, hosts.ask(context, 42, "sleep"))
    end
    assert.equal("process 42: there is no such process", words {})
    assert.equal("42 is a thread of process 7; name the process", words({}, "",
      "Name:\ta\nTgid:\t7\nPid:\t42\n"))
    assert.matches("does not run under loam", words({}, "", "Name:\ta\nTgid:\t42\nPid:\t42\n"))
    assert.equal("python3 (42) does not run under loam, or another user started it: nothing "
      .. "listens at /run/42.sock", words({}, ""))
    assert.equal("python3 (42) runs under loam, but its board /run/7.board has been removed; "
      .. "`loam stats 42` reads its memory", words({}, "7-9 r--s 0 0 9 /run/7.board (deleted)\n"))
    assert.equal("python3 (42) has no service to ask: start it with `loam run --service`",
      words { on_board { board = "/run/b" } })
    assert.equal("python3 (42) has ended", words { on_board { board = "/run/b", state = "ended" } })
  end)

  it("does not reload a process that has ended", function()
    local status, context = run("reload 42", { boards = { on_board { state = "ended" } } })
    assert.same({ 1, "loam: python3 (42) has ended\n" }, { status, context.err })
  end)

  it("gives a list to choose from where there are more", function()
    for _, verb in ipairs { "stats", "status", "profile" } do
      local status, context = run(verb, { hosts = { 41, 42 }, [42] = STATUS })
      assert.equal(2, status)
      assert.matches("loam " .. verb .. " 42    # python3", context.err, 1, true)
    end
  end)

  it("says that there is no host", function()
    local status, context = run("status")
    assert.same({ 1, "loam: no program of yours runs under loam\n" }, { status, context.err })
  end)

  it("shows figures by tag", function()
    local _, context = run("stats 42", { [42] = {
      pid = 42, generation = 1, live_bytes = 2 ^ 21, live_blocks = 3, total_bytes = 2 ^ 31,
      total_blocks = 1234567, reserved_bytes = 2 ^ 40, region_bytes = 2 ^ 22, metadata_bytes = 100,
      denied = 0, fallbacks = 1, failed = 0, bad_frees = 0,
      rows = { { tag = "", strategy = "plain", kind = "host", live_bytes = 2 ^ 21, live_blocks = 3,
                 total_bytes = 2 ^ 31, total_blocks = 1234567 } },
    } })
    assert.equal("TAG  STRATEGY   LIVE  BLOCKS   EVER     BLOCKS\n"
      .. "\"\"   plain     2 MiB       3  2 GiB  1,234,567\n"
      .. "live 2 MiB in 3 blocks; ever 2 GiB in 1,234,567 blocks; "
      .. "4 MiB held by pools, 100 B of bookkeeping\n"
      .. "1 request served by a fallback\n", context.out)
  end)

  it("shows how much of the resident memory is not loam's", function()
    local _, context = run("stats 42", { [42] = {
      pid = 42, generation = 1, live_bytes = 0, live_blocks = 0, total_bytes = 0,
      total_blocks = 0, reserved_bytes = 0, region_bytes = 0, metadata_bytes = 0,
      denied = 0, fallbacks = 0, failed = 0, bad_frees = 0, rows = {}, got = {},
      resident_bytes = 184 * 2 ^ 20, resident_own_bytes = 6 * 2 ^ 20,
      resident_file_bytes = 20971520, resident_stack_bytes = 1048576, resident_code_bytes = 7340032,
    } })
    assert.matches("\nresident 184 MiB, of which 6 MiB are loam's; files 20 MiB, stacks 1 MiB, "
      .. "JIT code 7 MiB, others 150 MiB\n", context.out, 1, true)
    assert.no.matches("pymalloc", context.out, 1, true)
  end)

  it("shows how full limits are, and which requests they refused", function()
    local function got(failed, at_limit)
      return { strategy = "tight", failed = failed, at_limit = at_limit, limit = 2 ^ 21,
               limit_used = 1.5 * 2 ^ 20, elsewhere_bytes = 0, huge_bytes = 0,
               huge_asked_bytes = 0, nodes = {} }
    end
    local function row(name, limit)
      return { tag = name, strategy = name, kind = "host", live_bytes = 1024, live_blocks = 1,
               total_bytes = 1024, total_blocks = 1, limit = limit,
               limit_used = limit and limit * 3 / 4 }
    end
    local _, context = run("stats 42", { [42] = {
      pid = 42, generation = 1, live_bytes = 0, live_blocks = 0, total_bytes = 0,
      total_blocks = 0, reserved_bytes = 0, region_bytes = 0, metadata_bytes = 0,
      denied = 0, fallbacks = 0, failed = 0, bad_frees = 0,
      rows = { row("tight", 2 ^ 21), row("free") }, got = { got(26, 26), got(26, 20) },
    } })
    assert.matches("TAG    STRATEGY   LIVE  BLOCKS   EVER  BLOCKS         LIMIT\n"
      .. "tight  tight     1 KiB       1  1 KiB       1  75% of 2 MiB\n"
      .. "free   free      1 KiB       1  1 KiB       1\n", context.out, 1, true)
    assert.matches("\ntight: could not serve 26 requests, because it was at its limit; "
      .. "now 1.5 MiB of 2 MiB are used\n"
      .. "tight: could not serve 26 requests, 20 of them because it was at its limit; now ",
      context.out, 1, true)
  end)

  it("says what a strategy asked for and did not get", function()
    local NODES = { { node = 0, bytes = 2 ^ 20 }, { node = 2, bytes = 3 * 2 ^ 20 } }
    local function got(name, elsewhere, huge, failed, nodes, unknown)
      return { strategy = name, failed = failed, served_late = 0, live_bytes = 2 ^ 23,
               checked_bytes = 2 ^ 22, untouched_bytes = 0, elsewhere_bytes = elsewhere,
               nodes = { unpack(NODES, 1, nodes) }, unknown_bytes = unknown or 0,
               huge_asked_bytes = 2 ^ 22, huge_bytes = huge }
    end
    local forced = got("forced", 0, 2 ^ 22, 0, 1)
    forced.huge_asked_bytes = 0
    local _, context = run("stats 42", { [42] = {
      pid = 42, generation = 1, live_bytes = 0, live_blocks = 0, total_bytes = 0,
      total_blocks = 0, reserved_bytes = 0, region_bytes = 0, metadata_bytes = 0,
      denied = 0, fallbacks = 0, failed = 0, bad_frees = 0, rows = {},
      got = { got("content", 0, 2 ^ 22, 0, 1), got("astray", 2 ^ 20, 2 ^ 21, 3, 2),
              got("spread", 0, 2 ^ 22, 0, 2), got("hidden", 0, 2 ^ 22, 0, 0, 2 ^ 22), forced },
    } })
    assert.matches("\nastray: could not serve 3 requests, because there was no such memory; "
      .. "LOAM_EVENTS=stderr prints the reason\n"
      .. "astray: 1 MiB of the 4 MiB examined are on other nodes than it asks for "
      .. "(all: 1 MiB on node 0, 3 MiB on node 2)\n"
      .. "astray: only 2 MiB of 4 MiB have huge pages\n", context.out, 1, true)
    assert.matches("\nforced: 4 MiB have huge pages against huge = false: the program itself asked "
      .. "the kernel for them\n", context.out, 1, true)
    assert.not_matches("content", context.out, 1, true)
    assert.matches("\nspread: of the 4 MiB examined, 1 MiB on node 0, 3 MiB on node 2\n",
      context.out, 1, true)
    assert.matches("\nhidden: the kernel does not show on which nodes its memory is "
      .. "(see `loam doctor`)\n", context.out, 1, true)
  end)

  it("waits for a reload and shows the full error", function()
    local status, context = run("reload 42 new.lua",
      { [42] = { ok = false, generation = 3, error = "new.lua:1: syntax: oops\n    1 | x" } })
    assert.equal(1, status)
    assert.equal("reload /cwd/new.lua", context.queries[1])
    assert.equal("refused: generation 3 stays live\nnew.lua:1: syntax: oops\n    1 | x\n",
      context.err)
    assert.equal(0, (run("reload 42", { [42] = { ok = true, generation = 4 } })))
  end)
end)
