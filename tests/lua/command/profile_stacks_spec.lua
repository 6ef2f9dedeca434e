-- profile_stacks_spec.lua - `loam profile --stacks`: how it makes a program sample, and the
-- profile of the samples.

local canned = require("canned_context")
local pprof_read = require("loam.command.profile.pprof_read")
local profile = require("loam.command.profile.profile")
local stacks = require("loam.command.profile.stacks")

local KiB, MiB = 2 ^ 10, 2 ^ 20

local function row(tag, live_bytes, frames)
  return { tag = tag, strategy = "plain", total_blocks = 4, total_bytes = 2 * live_bytes,
           live_blocks = 2, live_bytes = live_bytes, frames = frames }
end

local function samples(interval, rows, more)
  local answer = { pid = 42, interval = interval, began = true, seconds = 20, live = 3,
                   live_lost = 0, unfit = 0, skipped = 0, stacks = rows,
                   mappings = { { from = 4096, to = 8192, offset = 0, file = "/bin/a" },
                                { from = 65536, to = 131072, offset = 4096, file = "/lib/b.so",
                                  build_id = "abcd" } } }
  for key, value in pairs(more or {}) do answer[key] = value end
  return answer
end

local ROWS = { row("x", 3 * MiB, { 65540, 4100 }), row("y", MiB, { 4100 }) }

-- Returns the answers for a program that follows a board.
local function followed(answer)
  local process = { pid = 42, board = "/run/b", state = "running", since_ms = 1, program = "a",
    folder = "/" }
  return { samples = answer, boards = { process } }
end

local function wishes(context)
  local list = {}
  for _, query in ipairs(context.queries) do
    if query:find("^wish") or query:find("^sample ") then list[#list + 1] = query end
  end
  return list
end

-- Returns the functions by which stacks.live looks up addresses.
local function symbols_of(known)
  return { find = function(address) return known[address] end }
end

local SUBJECT = { pid = 42, program = "a", version = "1", now = 1000 }

local function names(sample)
  local out = {}
  for i, frame in ipairs(profile.stack_frames(sample.stack)) do out[i] = frame.name end
  return table.concat(out, ";")
end

describe("a profile of stacks", function()
  it("has functions, or addresses in files, the outermost first", function()
    local made = stacks.live(samples(512 * KiB, ROWS), SUBJECT,
      symbols_of { [4100] = { name = "main", file = "a.c", line = 7 } })
    assert.equal("main;b.so+0x1004", names(made.samples[1]))
    assert.equal("main", names(made.samples[2]))
    assert.same({ 4, 6 * MiB, 2, 3 * MiB }, made.samples[1].values)
    assert.equal("x", made.samples[1].labels[1].text)
    assert.equal("abcd", made.mappings[2].build_id)
    assert.is_true(made.mappings[1].has_lines)
    assert.is_nil(made.mappings[2].has_functions)
    assert.equal(512 * KiB, made.period)
  end)

  it("leaves out the innermost functions of loam", function()
    local own = { "note_sample.constprop.0", "lm_decision_make", "serve_guarded", "serve_slow" }
    local frames, known = {}, {}
    for i, name in ipairs(own) do frames[i], known[4096 + i] = 4096 + i, { name = name } end
    frames[#own + 1], known[4200] = 4200, { name = "main" }
    local made = stacks.live(samples(1, { row("x", 1, frames) }), SUBJECT, symbols_of(known))
    assert.equal("main", names(made.samples[1]))
  end)

  it("shows functions of the program whose names are common words", function()
    local frames, known = { 4096, 4097, 4098, 4099 }, {}
    for i, name in ipairs { "lm_sample_take", "loam_malloc", "serve", "learn" } do
      known[frames[i]] = { name = name }
    end
    local made = stacks.live(samples(1, { row("x", 1, frames) }), SUBJECT, symbols_of(known))
    assert.equal("learn;serve", names(made.samples[1]))
  end)

  it("knows only static functions that the core has", function()
    for name, path in pairs(stacks.OWN_STATIC) do
      local file = assert(io.open("core/" .. path))
      local text = file:read("*a")
      file:close()
      assert.is_truthy(text:find("\n%u[%u_]+ [^\n]*%f[%w_]" .. name .. "%(")
        or text:find("\nstatic [^\n]*%f[%w_]" .. name .. "%("), name .. " in " .. path)
    end
  end)

  it("has frames of Python in place of the C frames that run them", function()
    local function frame(name, is_entry)
      return { name = name, file = "a.py", line = 3, is_entry = is_entry }
    end
    local one = row("x", 1, { 4100, 4101, 4102, 4103, 4104 })
    one.python = { frame("inner", true), frame("middle", false), frame("outer", true) }
    local known = { [4100] = { name = "malloc" }, [4101] = { name = "_PyEval_EvalFrameDefault" },
                    [4102] = { name = "call" }, [4103] = { name = "_PyEval_EvalFrameDefault" },
                    [4104] = { name = "main" } }
    local made = stacks.live(samples(1, { one }), SUBJECT, symbols_of(known))
    assert.equal("main;outer;middle;call;inner;malloc", names(made.samples[1]))
    made = stacks.live(samples(1, { one }), SUBJECT, nil)
    assert.matches("^outer;middle;inner;a%+", names(made.samples[1]))
  end)

  it("has the samples without a row, and says what is missing", function()
    local rest = row(nil, 5, {})
    rest.strategy = nil
    local answer = samples(1, { rest }, { unfit = 1, live_lost = 2 })
    local made = stacks.live(answer, SUBJECT, nil)
    assert.equal("(stacks beyond the table)", names(made.samples[1]))
    assert.equal(2, #stacks.losses(answer))
    assert.matches("1 sample had no room", made.comments[3])
    made = stacks.live(samples(512 * KiB, ROWS, { skipped = 1 }), SUBJECT)
    assert.equal("dropped 1 sample, since the program was forking", made.comments[3])
  end)
end)

describe("loam profile --stacks", function()
  local function run(options, answers)
    local status, context = canned.run("profile 42 --stacks " .. options, answers)
    return status, context, context.files[context.out:match("^(.-): ") or ""]
  end

  it("reads the samples of a program that samples", function()
    local status, context, file = run("", followed(samples(4 * KiB, ROWS)))
    assert.equal(0, status)
    assert.same({}, wishes(context))
    assert.equal("loam-42.001.pb.gz: inuse_space 4 MiB in 2 stacks\n", context.out)
    local made = assert(pprof_read.read(file))
    assert.equal(4 * MiB, profile.total(made, 4))
    assert.equal(0, context.clock)
  end)

  it("has a program sample for a time, and then no more", function()
    local status, context = run("--for 3s", followed(samples(0, ROWS)))
    assert.equal(0, status)
    assert.same({ "wish /run/b 42 524288", "wish /run/b 42 0" }, wishes(context))
    assert.equal(3000, context.clock)
    assert.matches("sampling process 42 for 3 s", context.err)
  end)

  it("leaves another interval as it was, or keeps the new one", function()
    local _, context = run("64KiB", followed(samples(4 * KiB, ROWS)))
    assert.same({ "wish /run/b 42 65536", "wish /run/b 42 4096" }, wishes(context))
    assert.equal(10000, context.clock)
    _, context = run("64KiB --keep", followed(samples(4 * KiB, ROWS)))
    assert.same({ "wish /run/b 42 65536" }, wishes(context))
  end)

  it("asks the service of a program that follows no board", function()
    local answer = samples(0, ROWS)
    local refusal = { ok = false, error = "no room" }
    local _, context = run("--for 1s", { samples = answer, [42] = refusal })
    assert.matches("no room", context.err)
    _, context = canned.run("profile 42 --stacks off", { samples = answer })
    assert.matches("42 has no answer", context.err)
  end)

  it("ends the samples", function()
    local status, context = run("off", followed(samples(4 * KiB, ROWS)))
    assert.equal(0, status)
    assert.same({ "wish /run/b 42 0" }, wishes(context))
    assert.equal("process 42 samples nothing\n", context.out)
  end)

  it("refuses options of a profile where it ends the samples", function()
    for _, words in ipairs { "--keep", "--for 1s", "--on failed", "--format svg", "-o x" } do
      local status, context = run("off " .. words, followed(samples(4 * KiB, ROWS)))
      assert.equal(2, status, words)
      assert.matches("`--stacks off` writes no profile", context.err, 1, true)
      assert.same({}, wishes(context))
    end
  end)

  it("says why it has nothing to show", function()
    local function shown(rows)
      local _, context = canned.run("profile 42 --stacks -o x", followed(samples(512 * KiB, rows)))
      return context.err
    end
    assert.matches("no block was sampled: the program requested little", shown({}), 1, true)
    assert.matches("try --sample alloc_space", shown { row("x", 0, { 4100 }) }, 1, true)
    assert.not_matches("try --sample", shown(ROWS), 1, true)
  end)

  it("says that an idle program begins later, and has no sample of an earlier session", function()
    local answers = followed(samples(0, ROWS))
    answers.obeys = false
    local _, context = run("--for 1s", answers)
    assert.matches("requested no memory for 2 s", context.err)
    assert.equal("loam-42.001.pb.gz: inuse_space 0 B in 0 stacks\n", context.out)
  end)

  it("has no difference with a profile by tags", function()
    local answers = followed(samples(512 * KiB, ROWS))
    local figures = row("x", 2)
    figures.generation, figures.rows = 1, { row("x", 2) }
    answers.seen = { [42] = figures }
    local status, context = canned.run("profile 42 --stacks -o stacks.pb", answers)
    assert.equal(0, status)
    answers.files = context.files
    assert.equal(0, (canned.run("profile 42 -o tags.pb", answers)))
    for args, words in pairs { ["--base stacks.pb"] = "stacks.pb: it is a profile by stacks; ",
                               ["--stacks --base tags.pb"] = "tags.pb: it is a profile by tags" } do
      status, context = canned.run("profile 42 -o - " .. args, answers)
      assert.same({ 1, "" }, { status, context.out })
      assert.matches("loam: " .. words, context.err, 1, true)
    end
    for _, args in ipairs { "--base tags.pb", "--stacks --base stacks.pb" } do
      assert.equal(0, (canned.run("profile 42 -o new.pb " .. args, answers)))
    end
  end)

  it("refuses values that are no interval, and options that need it", function()
    for words, message in pairs {
      ["--stacks 0KiB"] = "not from 1 to", ["--stacks 2TiB"] = "not from 1 to",
      ["--stacks some"] = "not a size", ["--for 1s"] = "%-%-for needs %-%-stacks",
      ["--keep"] = "%-%-keep needs %-%-stacks",
    } do
      local status, context = canned.run("profile 42 " .. words, followed(samples(0, ROWS)))
      assert.equal(2, status)
      assert.matches(message, context.err)
    end
  end)
end)
