-- run_spec.lua - `loam run` against an engine of canned answers.

local canned_context = require("canned_context")

local run = canned_context.run

local REFUSED = {
  verb = "check", policy = "p.lua", ok = false,
  errors = { { file = "p.lua", line = 3, class = "name", reason = "there is no b", source = "b()",
               suggestion = "did you mean 'a'?" } },
}

describe("loam run", function()
  local FINE = { vetted = "00c0ffee00c0ffee:31z02", board = "/run/7.board" }

  it("becomes the command, with the policy in its environment", function()
    local _, context = run("run --policy p.lua --watch -- prog --flag -x", FINE)
    assert.same({ "prog", "--flag", "-x" }, { unpack(context.executed) })
    assert.same({
      LD_PRELOAD = "/opt/bin/../lib/loam/libloam-preload.so", LOAM_POLICY = "/cwd/p.lua",
      LOAM_WATCH = false, LOAM_SERVICE = false, LOAM_LENIENT = false, LOAM_RUN = "4242",
      LOAM_VETTED = "00c0ffee00c0ffee:31z02", LOAM_BOARD = "/run/7.board",
    }, context.set)
    assert.same({ "/run/7.board", "/cwd/p.lua" }, context.watched)
  end)

  it("gives programs the absolute path of the folder of sockets", function()
    local _, context = run("run --policy p.lua -- prog", FINE, { LOAM_CONTROL_DIR = "rel" })
    assert.equal("/cwd/rel", context.set.LOAM_CONTROL_DIR)
  end)

  it("lets programs with a service, and programs without a board, follow the file", function()
    local _, context = run("run --policy p.lua --watch --service -- prog", FINE)
    assert.equal("1", context.set.LOAM_WATCH)
    assert.equal("1", context.set.LOAM_SERVICE)
    assert.is_nil(context.watched)
    _, context = run("run --policy p.lua --watch -- prog", FINE, { LOAM_CONTROL = "0" })
    assert.equal("1", context.set.LOAM_WATCH)
    assert.is_nil(context.watched)
  end)

  it("starts a watcher if the policy needs one, and no service", function()
    local answers = { vetted = FINE.vetted, board = FINE.board, needs_watcher = true }
    local _, context = run("run --policy p.lua -- prog", answers)
    assert.is_false(context.set.LOAM_SERVICE)
    assert.is_false(context.set.LOAM_WATCH)
    assert.same({ "/run/7.board" }, context.watched)
    _, context = run("run --policy p.lua -- prog", answers, { LOAM_CONTROL = "0" })
    assert.is_nil(context.watched)
  end)

  it("starts a watcher for memory pressure if memory is limited", function()
    local answers = { vetted = FINE.vetted, board = FINE.board, has_limit = true }
    local _, context = run("run --policy p.lua -- prog", answers)
    assert.same({ "/run/7.board" }, context.watched)
    assert.is_false(context.set.LOAM_WATCH)
    _, context = run("run --policy p.lua --service -- prog", answers)
    assert.is_nil(context.watched)
    _, context = run("run --policy p.lua -- prog", FINE)
    assert.is_nil(context.watched)
  end)

  it("says that it turns a service on", function()
    local answers = { vetted = FINE.vetted, board = FINE.board,
      why = "reads the free memory of devices" }
    local _, context = run("run --policy p.lua -- prog", answers)
    assert.equal("1", context.set.LOAM_SERVICE)
    assert.matches("^loam: the policy reads the free memory of devices, so each program gets a "
      .. "service thread, as with %-%-service\n", context.err)
    _, context = run("run --policy p.lua --service -- prog", answers)
    assert.not_matches("reads the free memory", context.err)
  end)

  it("makes Python call malloc for each object where it is told to", function()
    local _, context = run("run --policy p.lua --python-malloc -- python3 x.py", FINE)
    assert.equal("malloc", context.set.PYTHONMALLOC)
    _, context = run("run --policy p.lua -- python3 x.py", FINE)
    assert.is_nil(context.set.PYTHONMALLOC)
  end)

  it("makes no board where the program has no control socket", function()
    local _, context = run("run --policy p.lua -- prog", FINE, { LOAM_CONTROL = "0" })
    assert.is_false(context.set.LOAM_BOARD)
  end)

  it("says why there is no board and what does not work then, unless it is to be silent", function()
    local answers = { vetted = FINE.vetted, no_board = "folder of boards: /run/loam: Read-only" }
    local _, context = run("run --policy p.lua -- prog", answers)
    local line = "loam: warning: the program has no board: folder of boards: /run/loam: Read-only; "
      .. "so `loam ps`, `top`, `metrics`, `status`, `wait` and `reload` do not find it "
      .. "(LOAM_CONTROL_DIR=FOLDER names another folder, LOAM_EVENTS=none hides this line)\n"
    assert.equal(line, context.err:match("^[^\n]*\n"))
    assert.equal("prog", context.executed[1])
    assert.is_false(context.set.LOAM_BOARD)
    _, context = run("run --policy p.lua --service -- prog", answers)
    assert.equal(line, context.err:match("^[^\n]*\n"))
    local small = { vetted = FINE.vetted, no_board = "a board takes 72 MiB of address space" }
    _, context = run("run --policy p.lua -- prog", small)
    assert.matches("do not find it (`loam stats` finds it by its process id, LOAM_EVENTS=none "
      .. "hides this line)\n", context.err, 1, true)
    _, context = run("run --policy p.lua -- prog", answers, { LOAM_EVENTS = "none" })
    assert.not_matches("board", context.err)
    _, context = run("run --policy p.lua -- prog", answers, { LOAM_CONTROL = "0" })
    assert.not_matches("board", context.err)
  end)

  it("leaves it to a program that prints all events to say why there is no board", function()
    local answers = { vetted = FINE.vetted, no_board = "Read-only" }
    for option, is_told in pairs { ["--service"] = false, ["--watch"] = false, ["--"] = true } do
      local _, context = run("run --policy p.lua " .. option .. " prog", answers,
        { LOAM_EVENTS = "stderr" })
      assert.equal(is_told, context.err:find("no board", 1, true) ~= nil, option)
    end
  end)

  it("leaves the command's own options alone without `--` too", function()
    local _, context = run("run --policy p.lua prog --watch", FINE)
    assert.same({ "prog", "--watch" }, { unpack(context.executed) })
    assert.is_false(context.set.LOAM_WATCH)
  end)

  it("comes before what is preloaded already", function()
    local _, context = run("run --policy p.lua prog", FINE, { LD_PRELOAD = "/lib/other.so" })
    assert.equal("/opt/bin/../lib/loam/libloam-preload.so:/lib/other.so", context.set.LD_PRELOAD)
  end)

  it("says where it looked for the preload library", function()
    local status, context = run("run --policy p.lua prog", FINE, { LOAM_PRELOAD = "/nowhere.so" })
    assert.equal(2, status)
    assert.equal("loam: LOAM_PRELOAD names /nowhere.so, which cannot be read\n", context.err)
    assert.is_nil(context.executed)
  end)

  it("takes a policy that was mended while its errors were looked for", function()
    local looks = 0
    local function vetted()
      looks = looks + 1
      if looks == 2 then return "00c0ffee00c0ffee:31z02", "has apply = \"live\"" end
    end
    local check = { verb = "check", policy = "p.lua", ok = true, errors = {} }
    local _, context = run("run --policy p.lua -- prog",
      { vetted = vetted, check = check, board = "/run/7.board" })
    assert.equal("00c0ffee00c0ffee:31z02", context.set.LOAM_VETTED)
    assert.equal("1", context.set.LOAM_SERVICE)
    assert.same({ "prog" }, { unpack(context.executed) })
  end)

  it("starts nothing under a policy that is refused", function()
    local status, context = run("run --policy p.lua -- prog", { check = REFUSED })
    assert.equal(2, status)
    assert.is_nil(context.executed)
    assert.matches("p.lua:3: name", context.err, 1, true)
  end)

  it("starts nothing under a policy file that other users can change", function()
    local function unsafe() return nil, "p.lua: this policy file has mode 0666" end
    local check = { verb = "check", policy = "p.lua", ok = true, errors = {} }
    local status, context = run("run --policy p.lua -- prog", { vetted = unsafe, check = check })
    assert.equal(2, status)
    assert.is_nil(context.executed)
    assert.equal("loam: p.lua: this policy file has mode 0666\n", context.err)
    local _
    _, context = run("run --policy p.lua --lenient -- prog", { vetted = unsafe, check = check })
    assert.same({ "prog" }, { unpack(context.executed) })
    assert.is_false(context.set.LOAM_SERVICE)
  end)

  it("starts nothing under a manifest, which is no policy file", function()
    local status, context = run("run --policy p.yaml -- prog", FINE)
    assert.equal(2, status)
    assert.is_nil(context.executed)
    assert.matches("p.yaml: it is a manifest; mount its ConfigMap", context.err, 1, true)
  end)

  it("asks for a report at the end, in a file or on standard error", function()
    local _, context = run("run --policy p.lua --report /r.log -- prog", FINE)
    assert.equal("/r.log", context.set.LOAM_REPORT)
    _, context = run("run --policy p.lua --report r.log -- prog", FINE)
    assert.matches("^/.*/r.log$", context.set.LOAM_REPORT)
    _, context = run("run --policy p.lua --report stderr -- prog", FINE)
    assert.equal("stderr", context.set.LOAM_REPORT)
    _, context = run("run --policy p.lua -- prog", FINE)
    assert.is_nil(context.set.LOAM_REPORT)
    local status
    status, context = run("run --policy /p.lua --report r.log -- prog", FINE, nil, nil,
      function(made)
        made.posix.absolute = function(path) return path:match("^/.*") end
      end)
    assert.equal(2, status)
    assert.matches("the current folder was removed; write --report as an absolute path",
      context.err, 1, true)
  end)

  it("guards blocks that the policy does not guard", function()
    local _, context = run("run --policy p.lua --guard -- prog", FINE)
    assert.equal("1", context.set.LOAM_GUARD)
    _, context = run("run --policy p.lua --guard prog", FINE)
    assert.equal("1", context.set.LOAM_GUARD)
    assert.same({ "prog" }, { unpack(context.executed) })
    _, context = run("run --guard 100 --policy p.lua -- prog", FINE)
    assert.equal("100", context.set.LOAM_GUARD)
    local status
    status, context = run("run --policy p.lua --guard 0 -- prog", FINE)
    assert.equal(2, status)
    assert.matches("--guard: '0' is not a whole number from 1 to", context.err, 1, true)
  end)

  it("says what is wrong with a number behind --guard, and where --policy is", function()
    local before = "--policy FILE is missing before COMMAND: all words from '%s' on are the command"
    for word, words in pairs {
      ["1e9"] = "--guard: '1e9' is not a whole number from 1 to 4294967295",
      ["0x10"] = "--guard: '0x10' is not a whole number from 1 to",
      ["1.5"] = "--guard: '1.5' is not a whole number from 1 to",
      abc = before:format("abc"), ["7z"] = before:format("7z"),
    } do
      local status, context = run("run --guard " .. word .. " --policy p.lua -- true", FINE)
      assert.equal(2, status)
      assert.matches(words, context.err, 1, true)
    end
    local status, context = run("run prog --policy=p.lua", FINE)
    assert.equal(2, status)
    assert.matches(before:format("prog"), context.err, 1, true)
    context = select(2, run("run --policy p.lua --guard 7z --policy x", FINE))
    assert.equal("7z --policy x", table.concat(context.executed, " "))
    context = select(2, run("run --policy p.lua --guard -- 1e9", FINE))
    assert.equal("1e9", context.executed[1])
    context = select(2, run("run prog --x", FINE))
    assert.matches("--policy FILE is missing\n", context.err, 1, true)
  end)

  it("checks the heap in place of glibc's library, if that is asked to", function()
    local function guard_of(command, env)
      env.LD_PRELOAD = "/lib/libc_malloc_debug.so.0"
      local _, context = run(command, FINE, env)
      return context.set.LOAM_GUARD, context.err
    end
    local plain = "run --policy p.lua -- prog"
    local words = "loam: note: loam checks the heap in place of libc_malloc_debug.so.0: it guards "
      .. "each block, as --guard 1 does\n"
    local checked = {
      { MALLOC_CHECK_ = "3" }, { MALLOC_CHECK_ = "1", GLIBC_TUNABLES = "x=1" },
      { GLIBC_TUNABLES = "glibc.malloc.check=3" },
      { MALLOC_CHECK_ = "", GLIBC_TUNABLES = "glibc.malloc.check=3" },
      { GLIBC_TUNABLES = "glibc.malloc.tcache_count=0:glibc.malloc.check=1" },
    }
    for _, env in ipairs(checked) do
      local guard, err = guard_of(plain, env)
      assert.equal("1", guard)
      assert.matches(words, err, 1, true)
    end
    local unchecked = {
      {}, { MALLOC_CHECK_ = "0" }, { MALLOC_CHECK_ = "" },
      { GLIBC_TUNABLES = "glibc.malloc.checks=1" },
    }
    for _, env in ipairs(unchecked) do assert.is_nil((guard_of(plain, env))) end
    local guard, err = guard_of(plain, { MALLOC_CHECK_ = "3", LOAM_EVENTS = "none" })
    assert.equal("1", guard)
    assert.no.matches("note", err, 1, true)
    assert.equal("50", (guard_of("run --policy p.lua --guard 50 -- prog", { MALLOC_CHECK_ = "3" })))
    local _, context = run(plain, FINE, { MALLOC_CHECK_ = "3" })
    assert.is_nil(context.set.LOAM_GUARD)
  end)

  it("says that glibc's library for heap checks has no effect", function()
    local preloaded = { LD_PRELOAD = "/lib/other.so:/lib/libc_malloc_debug.so.0" }
    local _, context = run("run --policy p.lua -- prog", FINE, preloaded)
    assert.matches("loam: note: libc_malloc_debug.so.0 checks and traces nothing, because loam",
      context.err, 1, true)
    assert.matches(":/lib/other.so:/lib/libc_malloc_debug.so.0", context.set.LD_PRELOAD, 1, true)
    preloaded.LOAM_EVENTS = "none"
    _, context = run("run --policy p.lua -- prog", FINE, preloaded)
    assert.no.matches("note", context.err, 1, true)
    _, context = run("run --policy p.lua -- prog", FINE, { LD_PRELOAD = "/lib/other.so" })
    assert.no.matches("note", context.err, 1, true)
  end)

  it("says if the program is not governed, unless it is to be silent", function()
    local _, context = run("run --policy p.lua -- static", FINE)
    assert.matches("loam: note: static is linked statically, so loam does not govern it\n",
      context.err, 1, true)
    assert.equal("static", context.executed[1])
    assert.matches("libloam-preload.so", context.set.LD_PRELOAD, 1, true)
    _, context = run("run --policy p.lua -- small", FINE)
    assert.is_false(context.set.LD_PRELOAD)
    _, context = run("run --policy p.lua -- static", FINE, { LOAM_EVENTS = "none" })
    assert.no.matches("note", context.err, 1, true)
  end)

  it("starts with a warning where it is told to be lenient", function()
    local _, context = run("run --policy p.lua --lenient -- prog", { check = REFUSED })
    assert.equal("prog", context.executed[1])
    assert.equal("1", context.set.LOAM_LENIENT)
    assert.matches("built-in default", context.err, 1, true)
  end)

  it("ends with 127 when there is no such command", function()
    local status, context = run("run --policy p.lua -- prog", FINE)
    assert.equal(127, status)
    assert.matches("loam: prog: No such file or directory", context.err, 1, true)
  end)
end)
