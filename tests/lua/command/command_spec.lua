-- command_spec.lua - the built `loam`, called from a shell. $LOAM holds its path.

local json = require("loam.report.json")

local LOAM = os.getenv("LOAM")
local describe_built = LOAM and describe or pending

-- A sanitizer's runtime library has its own malloc and must be loaded first, so that no library can
-- be preloaded.
local describe_preloaded = (os.getenv("LOAM_SANITIZE") or "") == "" and describe or pending

local folder -- the files of this run

local function path(name) return folder .. "/" .. name end

local function spill(name, text)
  local file = assert(io.open(path(name), "w"))
  file:write(text)
  file:close()
  return path(name)
end

local function slurp(name)
  local file = assert(io.open(path(name)))
  local text = file:read("*a")
  file:close()
  return text
end

-- Runs a line of shell in which $LOAM is the command. Returns the exit status, the output and the
-- errors.
local function shell(line)
  local settings = ("export LOAM='%s' LOAM_CONTROL_DIR='%s/sockets'"):format(LOAM, folder)
  local full = ("cd '%s' && %s && ( %s ) >out 2>err </dev/null"):format(folder, settings, line)
  return os.execute(full) / 256, slurp("out"), slurp("err")
end

local function loam(args) return shell('"$LOAM" ' .. args) end

-- Runs `line` while a program sleeps under good.lua. $PID is the process id of the program, and
-- `line` must name it: `ps` and `status` also find programs of other tests.
--- `options` are further options of `loam run`.
local function beside(line, options)
  return shell('"$LOAM" run --policy good.lua ' .. (options or "") .. ' -- sleep 600 & PID=$!; '
    .. 'trap "kill $PID; wait $PID" EXIT; '
    .. 'for i in $(seq 600); do "$LOAM" status $PID >/dev/null 2>&1 && break; sleep 0.1; '
    .. 'done; ' .. line)
end

-- A shell command that waits until the program of `beside` has memory. By then it is on its board.
local HAS_MEMORY = 'for i in $(seq 600); do "$LOAM" stats $PID | grep -q malloc && break; '
  .. 'sleep 0.1; done; '

local GOOD = [[
local MiB = loam.MiB
local small = loam.host { name = "small", align = 64 }
local big = loam.host { name = "big", align = 4096 }
return loam.policy {
  name = "good",
  pick = function(req)
    if req.tag:under("tensor") and req.size >= 4 * MiB then
      return big:or_else(small)
    end
    return small
  end,
  tests = {
    { tag = "tensor.weights", size = 8 * MiB, expect = big },
    { tag = "log", size = 100, expect = small },
  },
  always = {
    ["logs are small"] = function(req, got) return not req.tag:under("log") or got.align == 64 end,
  },
}
]]

local BROKEN = [[
local small = loam.host { name = "small" }
return loam.policy {
  pick = function(req)
    if req.size >= 4096 then
      if req.szie > 8192 then return small end
    end
    return small
  end,
}
]]

describe_built("the built command", function()
  setup(function()
    folder = os.tmpname()
    os.remove(folder)
    assert(os.execute("mkdir '" .. folder .. "'"))
    spill("good.lua", GOOD)
    spill("broken.lua", BROKEN)
  end)

  teardown(function() os.execute("rm -rf '" .. folder .. "'") end)

  it("tells its version and its commands", function()
    local status, out = loam("--version")
    assert.equal(0, status)
    assert.matches("^loam %d+%.%d+%.%d+\n$", out)
    status, out = loam("--help")
    assert.equal(0, status)
    assert.matches("\n  explain ", out, 1, true)
    for _, args in ipairs { "help", "help --help", "help help" } do
      assert.same({ 0, out, "" }, { loam(args) })
    end
  end)

  it("ends with 2 when it is not called as it should be", function()
    for _, args in ipairs { "", "chekc", "check", "check --bogus x", "explain good.lua",
                            "explain good.lua --tag x --size abc", "reload", "reload x",
                            "--version x", "--help x", "help check plan", "reload $$ ''" } do
      local status, out, err = loam(args)
      assert.equal(2, status, args)
      assert.equal("", out)
      assert.matches("^loam[^\n]*: [^\n]+\nTry `loam [^\n]*`.\n$", err)
    end
  end)

  describe("check", function()
    it("takes a good policy", function()
      local status, out, err = loam("check good.lua --tag more")
      assert.equal(0, status)
      assert.equal("", err)
      assert.matches('^good.lua: ok: "good", 2 strategies', out)
    end)

    it("shows a fault as a compiler does", function()
      local status, out, err = loam("check broken.lua")
      assert.equal(1, status)
      assert.equal("", out)
      assert.matches("broken.lua:5: field: req has no field 'szie'\n"
        .. "    5 |       if req.szie > 8192 then return small end\n", err, 1, true)
      assert.matches("did you mean 'size'?", err, 1, true)
    end)

    it("answers in JSON", function()
      local status, out = loam("check broken.lua --json")
      assert.equal(1, status)
      local answer = json.decode(out)
      assert.is_false(answer.ok)
      assert.equal("check", answer.verb)
      assert.equal("broken.lua", answer.errors[1].file)
      assert.equal(5, answer.errors[1].line)
      assert.equal("field", answer.errors[1].class)
      assert.equal("      if req.szie > 8192 then return small end", answer.errors[1].source)
    end)

    it("takes any bad input with one clear line", function()
      spill("empty.lua", "")
      spill("cut.lua", GOOD:sub(1, 300))
      spill("binary.lua", "\27LJ\2\0")
      spill("nothing.lua", "local x = 1\n")
      spill("secret.lua", GOOD)
      shell("chmod 000 secret.lua; mkdir -p folder; mkfifo pipe; ln -s loop loop")
      for _, name in ipairs { "absent.lua", "empty.lua", "cut.lua", "binary.lua", "nothing.lua",
                              "folder", "pipe", "loop", "/dev/zero", "/proc/self/mem" } do
        local status, out, err = loam("check " .. name)
        assert.equal(1, status, name)
        assert.equal("", out)
        assert.matches("^[^\n]*" .. name:gsub("%W", "%%%0") .. "[^\n]*: %l+: [^\n]+\n", err, name)
        assert.is_nil(err:find("internal", 1, true))
      end
    end)
  end)

  describe("explain", function()
    it("has the keys that are fixed", function()
      local status, out = loam("explain good.lua --tag tensor.x --size 8MiB --align 64 --zero"
        .. " --node 0 --live 0 --json")
      assert.equal(0, status)
      local answer = json.decode(out)
      assert.equal("explain", answer.verb)
      assert.is_true(answer.ok)
      assert.equal("tensor.x", answer.tag)
      assert.equal(8 * 2 ^ 20, answer.size)
      assert.equal("big", answer.strategy.name)
      assert.equal("host", answer.strategy.kind)
      assert.equal(4096, answer.strategy.align)
      assert.equal(8, answer.line)
      assert.equal(1, answer.generation)
      local last = answer.path[#answer.path]
      assert.same({ line = 7, condition = "req.size >= 4194304", holds = true }, last)
    end)

    it("answers a batch in order, one object a line", function()
      spill("batch", "log\t100\ntensor.a\t8388608\t64\t1\n\t0\n")
      local status, out = loam("explain good.lua --batch batch")
      assert.equal(0, status)
      local names = {}
      for line in out:gmatch("[^\n]+") do
        local answer = assert(json.decode(line))
        assert.is_true(answer.ok)
        names[#names + 1] = answer.tag .. ":" .. answer.strategy.name
      end
      assert.same({ "log:small", "tensor.a:big", ":small" }, names)
    end)

    it("answers a batch's faults in their places", function()
      spill("batch", "log\t100\nlog\nlog\tx\nlog\t200\n")
      local status, out, err = loam("explain good.lua --batch batch")
      assert.equal(1, status)
      assert.equal("", err)
      local sizes = {}
      for line in out:gmatch("[^\n]+") do
        local answer = assert(json.decode(line))
        sizes[#sizes + 1] = answer.size or answer.errors[1].line .. " " .. answer.errors[1].class
      end
      assert.same({ 100, "2 batch", "3 batch", 200 }, sizes)
      status, out, err = loam("explain broken.lua --batch batch")
      assert.equal(1, status)
      assert.equal("", out)
      assert.matches("broken.lua:5: field", err, 1, true)
    end)

    it("quotes the lines that decided", function()
      local _, out = loam("explain good.lua --tag tensor.x --size 8MiB")
      assert.matches("tensor.x, 8 MiB: big, else small\n", out, 1, true)
      assert.matches('good.lua:7: if req.tag:under("tensor") and req.size >= 4 * MiB then', out,
        1, true)
      assert.matches("req.size >= 4194304 was true", out, 1, true)
    end)
  end)

  it("plans a tag", function()
    local status, out = loam("plan good.lua --tag tensor.x")
    assert.equal(0, status)
    assert.matches(">= 4 MiB", out, 1, true)
    assert.matches("big, else small  8\n", out, 1, true)
    local _, text = loam("plan good.lua --tag tensor.x --json")
    local answer = json.decode(text)
    assert.equal(2, answer.leaves)
    assert.equal(2, #answer.rows)
  end)

  it("runs the tests of a policy as TAP", function()
    local status, out = loam("test good.lua")
    assert.equal(0, status)
    assert.matches("^TAP version 13\n1%.%.3\nok 1 %- ", out)
    assert.matches("\nok 3 - always: logs are small\n", out, 1, true)
    assert.matches("\n# %d+ of %d+ leaves are reached", out)
    local line = "ok 1 - tag 'tensor.weights', size 8388608\n"
    assert.matches(line, out, 1, true)
    assert.matches(line, select(2, loam("help test")), 1, true)
  end)

  it("looks at the machine", function()
    local status, out, err = loam("doctor")
    assert.equal(0, status)
    assert.equal("", err)
    assert.matches("huge pages", out, 1, true)
    local _, text = loam("doctor --json")
    assert.is_table(json.decode(text))
  end)

  describe("where its output goes", function()
    it("ends quietly when nobody reads on", function()
      local _, out, err = loam("--help | head -1")
      assert.equal("loam - memory policies for running programs\n", out)
      assert.equal("", err)
      local deaf = "trap '' PIPE; for i in 1 2 3; do \"$LOAM\" --help; done | :"
      assert.equal("", select(3, shell(deaf)))
    end)

    it("says when it cannot be written", function()
      local status, _, err = loam("--help > /dev/full")
      assert.equal(1, status)
      assert.equal("loam: cannot write: No space left on device\n", err)
    end)

    it("is coloured on a terminal only, and not with NO_COLOR", function()
      if os.execute("command -v script >/dev/null 2>&1") ~= 0 then
        return pending("script is not installed")
      end
      local function on_terminal(before)
        local line = "TERM=xterm script -qec '%s \"$LOAM\" check broken.lua' /dev/null"
        local _, out = shell(line:format(before))
        return out:find("\27[", 1, true) ~= nil
      end
      assert.is_true(on_terminal("env -u NO_COLOR"))
      assert.is_false(on_terminal("env NO_COLOR=1"))
      assert.is_nil(select(3, loam("check broken.lua")):find("\27", 1, true))
    end)
  end)

  it("explains a witness of diff whose tag has two lines", function()
    spill("two.lua", (GOOD:gsub("pick = function%(req%)",
      "%0 if req.tag == 'a\\nb' then return big end")))
    local status, out, err = shell('"$LOAM" diff good.lua two.lua > told; cat told; '
      .. 'echo "$LOAM explain two.lua $(sed -n "s/.* witness //p" told)" > ask; bash ask')
    assert.equal(0, status, err)
    assert.matches('where req.tag == "a\\nb"\n', out, 1, true)
    assert.matches("\na\\010b, [^\n]*: big\n", out)
    assert.matches('req.tag == "a\\nb" was true\n', out, 1, true)
  end)

  describe_preloaded("run", function()
    it("passes the command's output and status through", function()
      local talker = "sh -c 'echo out; echo err >&2; exit 7'"
      local status, out, err = loam("run --policy good.lua -- " .. talker)
      assert.equal(7, status)
      assert.equal("out\n", out)
      assert.equal("err\n", err)
    end)

    it("starts nothing under a broken policy", function()
      local status, out, err = loam("run --policy broken.lua -- echo started")
      assert.equal(2, status)
      assert.equal("", out)
      assert.matches("broken.lua:5: field", err, 1, true)
      assert.equal(2, (loam("run --policy absent.lua -- echo started")))
    end)

    it("starts leniently with a warning", function()
      local status, out, err = loam("run --lenient --policy broken.lua -- echo started")
      assert.equal(0, status)
      assert.equal("started\n", out)
      assert.matches("built-in default", err, 1, true)
      assert.equal(1, select(2, err:gsub("req has no field", "")), err)
    end)

    it("ends as a shell does for what cannot be run", function()
      assert.equal(127, (loam("run --policy good.lua -- no-such-command")))
      assert.equal(126, (loam("run --policy good.lua -- /")))
    end)
  end)

  describe_preloaded("with a running host", function()
    it("lists it and tells its policy", function()
      local _, out = beside('"$LOAM" ps; "$LOAM" status $PID; "$LOAM" status $PID --json')
      assert.matches("sleep +running +1  good", out)
      assert.matches("policy +good, generation 1", out)
      assert.matches('"generation":1', out, 1, true)
    end)

    it("does not list the command itself when that runs under loam", function()
      local _, out = beside('"$LOAM" run --policy good.lua -- "$LOAM" ps')
      assert.matches("sleep +running +1  good", out)
      assert.not_matches("\n *%d+ +loam +%a+ +%d+  good", out)
    end)

    it("says that no such tag has memory", function()
      for _, request in ipairs { "rebalance $PID", "demote $PID --to cold" } do
        local status, out, err = beside('"$LOAM" ' .. request .. " --tag nosuch", "--service")
        assert.equal(1, status)
        assert.equal("", out)
        assert.matches("^loam: process %d+ has no memory of tag 'nosuch', or of a tag under it\n",
          err)
      end
      assert.equal(0,
        (beside(HAS_MEMORY .. '"$LOAM" rebalance $PID --tag malloc', "--service")))
    end)

    it("shows its memory", function()
      local _, out = beside(HAS_MEMORY .. '"$LOAM" stats $PID; "$LOAM" stats $PID --json',
        "--service")
      assert.matches("malloc%.[%w_.+-]+ +small", out)
      assert.matches('"rows":[{', out, 1, true)
    end)

    it("reloads it, and keeps its policy when the new one is refused", function()
      local _, out, err = beside('"$LOAM" reload $PID; echo $?; "$LOAM" reload $PID broken.lua; '
        .. 'echo $?; "$LOAM" status $PID', "--service")
      assert.matches("live: generation 2\n0\n1\n", out, 1, true)
      assert.matches("refused: generation 2 stays live\n", err, 1, true)
      assert.matches("broken.lua:5: field: req has no field 'szie'", err, 1, true)
      assert.matches("last +refused", out)
      assert.matches("req has no field 'szie'", out, 1, true)
    end)
  end)

  describe_preloaded("with a running guest", function()
    it("publishes a policy, and says that the program does not request memory", function()
      local _, out = beside('"$LOAM" reload $PID; echo $?; "$LOAM" reload $PID --json')
      assert.matches("^published: process %d+ obeys with its next request for memory\n0\n", out)
      assert.matches('"ok":true', out, 1, true)
    end)

    it("shows a policy that was refused, and keeps its own", function()
      local _, out, err = beside('"$LOAM" reload $PID broken.lua; echo $?; "$LOAM" status $PID')
      assert.matches("1\n", out, 1, true)
      assert.matches("refused: generation 1 stays live\n", err, 1, true)
      assert.matches("req has no field 'szie'", err, 1, true)
      assert.matches("last +refused", out)
    end)

    it("says that one of two policies was overtaken", function()
      spill("other.lua", GOOD .. "-- another text\n")
      local _, out, err = beside('("$LOAM" reload $PID good.lua; echo $?) & FIRST=$!; '
        .. '"$LOAM" reload $PID other.lua; echo $?; wait $FIRST')
      assert.matches("^published: process %d+ obeys with its next request for memory\n0\n",
        (out:gsub("3\n", "")))
      assert.matches("3\n", out, 1, true)
      assert.matches("overtaken: another policy, with hash %x+, was published after this one\n",
        err)
    end)

    it("says in one line that it has no service to move its memory", function()
      local status, _, err = beside('"$LOAM" rebalance $PID')
      assert.equal(1, status)
      assert.matches("^loam: sleep %(%d+%) has no service to ask: start it with "
        .. "`loam run %-%-service`\n", err)
    end)
  end)

  describe("the manual", function()
    -- Returns the words of the manual's section about JSON.
    local function documented()
      local words = {}
      local file = assert(io.open("policies/observing.md"))
      local section = file:read("*a"):match("\n## JSON\n(.-)\n## ")
      file:close()
      for word in section:gmatch("[%w_]+") do words[word] = true end
      return words
    end

    -- Asserts that every key of an answer, and of the tables in it, is a word of the manual.
    local function check_keys(words, value)
      if type(value) ~= "table" then return end
      for key, inner in pairs(value) do
        assert.is_true(type(key) == "number" or words[key] == true, tostring(key))
        check_keys(words, inner)
      end
    end

    it("names every key of every answer in JSON", function()
      local words = documented()
      local answers = { "check good.lua", "check broken.lua", "plan good.lua --tag tensor.x",
                        "explain good.lua --tag tensor.x --size 8MiB", "test good.lua", "doctor" }
      for _, args in ipairs(answers) do
        local _, out = loam(args .. " --json")
        check_keys(words, assert(json.decode(out)))
      end
    end)

    it("names every key of the answers of a host", function()
      if (os.getenv("LOAM_SANITIZE") or "") ~= "" then return pending("no library is preloaded") end
      local words = documented()
      for _, args in ipairs { "ps", "status $PID", "stats $PID", "reload $PID", "rebalance $PID",
                              "demote $PID --to cold --tag malloc", "wake $PID" } do
        local _, out = beside('"$LOAM" ' .. args .. " --json", "--service")
        check_keys(words, assert(json.decode(out)))
      end
      for _, args in ipairs { "status $PID", "reload $PID", "wait --policy good.lua $PID",
                              "wait --policy broken.lua $PID --timeout 0" } do
        local _, out = beside('"$LOAM" ' .. args .. " --json")
        check_keys(words, assert(json.decode(out)))
      end
    end)
  end)

  -- This names a process: without one, the command would find programs of other tests. Process 1
  -- would not do: the first process of a container that has ended may be on a board.
  it("says that a process is no host", function()
    local own = assert(io.open("/proc/self/stat")):read("*n")
    local status, _, err = loam("status " .. own)
    assert.equal(1, status)
    assert.matches(("^loam: [^\n]*%d[^\n]*\n$"):format(own), err)
  end)
end)
