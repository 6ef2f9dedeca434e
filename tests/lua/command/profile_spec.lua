-- profile_spec.lua - `loam profile`: the figures that it reads, and the files that it writes.

local canned = require("canned_context")
local json = require("loam.report.json")
local pprof_read = require("loam.command.profile.pprof_read")
local profile = require("loam.command.profile.profile")

local MiB = 2 ^ 20

local function row(tag, strategy, live_bytes, classes)
  return { tag = tag, strategy = strategy, kind = "host", live_bytes = live_bytes,
           live_blocks = 2, total_bytes = 3 * live_bytes, total_blocks = 5, classes = classes }
end

-- Returns the answer to `stats` with these rows, and with their sums.
local function figures(rows)
  local answer = { pid = 42, generation = 3, live_bytes = 0, live_blocks = 0, total_bytes = 0,
                   total_blocks = 0, rows = rows }
  for _, r in ipairs(rows) do
    for _, name in ipairs { "live_bytes", "live_blocks", "total_bytes", "total_blocks" } do
      answer[name] = answer[name] + r[name]
    end
  end
  return answer
end

local function seen(rows) return { seen = { [42] = figures(rows) } } end

local function names(sample)
  local out = {}
  for i, frame in ipairs(profile.stack_frames(sample.stack)) do out[i] = frame.name end
  return table.concat(out, ";")
end

-- Runs the command and reads the pprof file that it wrote. Returns the profile and the context.
local function take(answers, options)
  local status, context = canned.run("profile 42 " .. (options or ""), answers)
  assert.equal("", context.err)
  assert.equal(0, status)
  return assert(pprof_read.read(context.files[context.out:match("^(.-): ")])), context
end

describe("loam profile", function()
  it("has the prefixes of a tag and the strategy as the stack, and exact sums", function()
    local made, context = take(seen { row("tensor.weights", "arrays", 3 * MiB),
                                      row("", "plain", 100) })
    assert.equal("loam-42.001.pb.gz: inuse_space 3 MiB in 2 stacks\n", context.out)
    assert.equal("tensor;tensor.weights;arrays", names(made.samples[1]))
    assert.equal('"";plain', names(made.samples[2]))
    assert.same({ 5, 9 * MiB, 2, 3 * MiB }, made.samples[1].values)
    assert.same({ "tag", "tensor.weights" },
      { made.samples[1].labels[1].key, made.samples[1].labels[1].text })
    assert.equal("arrays", made.samples[1].labels[2].text)
    assert.equal("inuse_space", made.types[made.default].type)
    assert.equal(3 * MiB + 100, profile.total(made, 4))
  end)

  it("marks a strategy that has the name of a tag above it", function()
    local made = take(seen { row("small.a", "small", 1), row("a", "small", 1) })
    assert.equal("small;small.a;small (strategy)", names(made.samples[1]))
    assert.equal("a;small", names(made.samples[2]))
    assert.equal("small", made.samples[1].labels[2].text)
  end)

  it("has the memory that the rows lack, and keeps any bytes of a tag", function()
    local answer = figures { row('q"\n;\255', "plain", 10) }
    answer.live_bytes = 17
    local made = take { seen = { [42] = answer } }
    assert.equal('q"\\010;\195\191;plain', names(made.samples[1]))
    assert.equal('q"\n;\195\191', made.samples[1].labels[1].text)
    assert.equal("(other tags)", names(made.samples[2]))
    assert.same({ 0, 0, 0, 7 }, made.samples[2].values)
  end)

  it("has a sample for each size class, with its size", function()
    local function class(from, to, live_bytes)
      return { from = from, to = to, live_bytes = live_bytes, live_blocks = 1,
               total_bytes = 3 * live_bytes, total_blocks = 2 }
    end
    local one = row("a", "plain", 80,
      { class(0, 16, 16), class(33, 48, 48), class(0, 2 ^ 47, 16) })
    one.live_blocks, one.total_blocks = 3, 6
    local made, context = take(seen { one })
    assert.matches("inuse_space 80 B in 1 stack\n", context.out, 1, true)
    local sizes = {}
    for i, sample in ipairs(made.samples) do
      sizes[i] = sample.labels[3] and sample.labels[3].number or "none"
    end
    assert.same({ 16, 48, "none" }, sizes)
    assert.equal(80, profile.total(made, 4))
  end)

  it("writes where it is told, and else under a new name", function()
    local answers = seen { row("a.b", "plain", 7) }
    local _, context = canned.run("profile 42 --format collapsed -o -", answers)
    assert.equal("a;a.b;plain 7\n", context.out)
    _, context = canned.run("profile 42 --format collapsed --sample alloc_objects -o x", answers)
    assert.equal("x: alloc_objects 5 in 1 stack\n", context.out)
    assert.equal("a;a.b;plain 5\n", context.files.x)
    _, context = canned.run("profile 42 --format text", answers)
    assert.matches("\ninuse_space 7 B, 100.0%%\n    plain\n    a.b\n    a\n$", context.out)
    answers.files = {}
    for i, ending in ipairs { "svg", "svg", "speedscope.json" } do
      context = canned.new(answers)
      context.exists["loam-42.001.svg"] = i == 2
      assert.equal(0, require("loam.command").main({ "profile", "42", "--format",
        ending:match("^%a+") }, context))
      assert.equal(("loam-42.00%d.%s"):format(i == 2 and 2 or 1, ending),
        context.out:match("^(.-): "))
    end
    local status
    status, context = canned.run("profile 42 -o /full", answers)
    assert.equal(1, status)
    assert.equal("loam: /full: No space left on device\n", context.err)
  end)

  it("subtracts a base, and keeps what vanished", function()
    local _, context = take(seen { row("a", "plain", 10), row("gone", "plain", 30) }, "-o base.pb")
    local files = context.files
    local answers = seen { row("a", "plain", 15), row("new", "plain", 1 * MiB) }
    answers.files = files
    local made
    made, context = take(answers, "--base base.pb")
    assert.equal("loam-42.001.pb.gz: inuse_space 1 MiB, 1 MiB more than in base.pb\n",
      context.out)
    local by_name = {}
    for _, sample in ipairs(made.samples) do by_name[names(sample)] = sample.values[4] end
    assert.same({ ["a;plain"] = 5, ["new;plain"] = 1 * MiB, ["gone;plain"] = -30 }, by_name)
    _, context = canned.run("profile 42 --base base.pb --format collapsed -o -", answers)
    assert.equal("a;plain 10 15\ngone;plain 30 0\nnew;plain 0 1048576\n", context.out)
    _, context = canned.run("profile 42 --base base.pb --format svg -o -", answers)
    assert.matches("no longer there", context.out, 1, true)
    answers = seen { row("a", "plain", 10), row("gone", "plain", 30) }
    answers.files = files
    made, context = take(answers, "--base base.pb")
    assert.equal(0, #made.samples)
    assert.matches("as much as in base.pb", context.out, 1, true)
  end)

  it("shows the change of a stack, and not of its size classes", function()
    local function classes(...)
      local sum, out = 0, {}
      for i, bytes in ipairs { ... } do
        out[i] = { from = 1, to = 16 * i, live_bytes = bytes, live_blocks = 1,
                   total_bytes = bytes, total_blocks = 1 }
        sum = sum + bytes
      end
      return row("a", "plain", sum, out)
    end
    local _, context = take(seen { classes(0, 50) }, "-o base.pb")
    local files = context.files
    local answers = seen { classes(80, 0) }
    answers.files = files
    _, context = canned.run("profile 42 --base base.pb --format svg -o -", answers)
    assert.not_matches("no longer there", context.out, 1, true)
    assert.matches("30 B more", context.out, 1, true)
    _, context = canned.run("profile 42 --base base.pb --format speedscope -o -", answers)
    local shown = json.decode(context.out).profiles
    assert.same({ { 30 }, {} }, { shown[7].weights, shown[8].weights })
    _, context = canned.run("profile 42 --base base.pb --format collapsed -o -", answers)
    assert.equal("a;plain 50 80\n", context.out)
  end)

  it("refuses a base that is no profile, with the reason", function()
    local answers = seen { row("a", "plain", 10) }
    local profiles = { ["other.pb"] = "\10\4\8\1\16\2" .. "\50\0" .. "\50\3cpu" .. "\50\1s" }
    answers.files = { empty = "", text = "return loam.policy {}\n", cut = "\31\139\8\0",
                      ["other.pb"] = profiles["other.pb"] }
    for name, words in pairs { missing = "No such file", empty = "it is empty",
                               text = "no pprof profile", cut = "no pprof profile: it is cut off",
                               ["other.pb"] = "it has cpu, and none of alloc_objects, " } do
      local status, context = canned.run("profile 42 --base " .. name, answers)
      assert.equal(1, status)
      assert.equal("", context.out)
      assert.matches("^loam: " .. name:gsub("%.", "%%.") .. ": [^\n]*\n$", context.err)
      assert.matches(words, context.err, 1, true)
    end
  end)

  it("profiles the last figures of a program by strategy", function()
    local dead = { pid = 42, program = "python3", state = "ended", announced = false,
      ended_at = 990e9, since_ms = 5, uid = 1000, updated_at = 940e9, strategies_left_out = 1,
      strategies = { { strategy = "large", live_bytes = 4096, held_bytes = 1, small_blocks = 7,
                       failed = 3 },
                     { strategy = "foreign", held_bytes = 0, small_blocks = 0, failed = 1 } } }
    local status, context = canned.run("profile 42 -o x.pb", { boards = { dead } })
    assert.equal(0, status)
    assert.equal("loam profile: python3 (42): about 4 KiB live by strategy, its last figures, "
      .. "of 1 minute ago\n", context.err)
    local made = assert(pprof_read.read(context.files["x.pb"]))
    assert.equal("(tag not known);large", names(made.samples[1]))
    assert.equal("inuse_space", profile.type_names(made))
    status, context = canned.run("profile 42 --sample alloc_space", { boards = { dead } })
    assert.equal(1, status)
    assert.matches("there is no alloc_space: the figures have inuse_space alone", context.err, 1,
      true)
    dead.strategies = {}
    status, context = canned.run("profile 42", { boards = { dead } })
    assert.equal(1, status)
    assert.equal("loam: python3 (42) noted no figures of its memory\n", context.err)
  end)

  it("names the argument that is wrong", function()
    for options, words in pairs {
      ["42 --format pb"] = "--format: 'pb' is not possible; write one of pprof, ",
      ["42 --format SVG"] = "--format: 'SVG' is not possible; ",
      ["42 --sample inuse"] = "--sample: 'inuse' is not possible",
      ["42 --base="] = "--base: the path is empty",
      ["x"] = "'x' is not a process id",
    } do
      local status, context = canned.run("profile " .. options, seen {})
      assert.equal(2, status)
      assert.matches(words, context.err, 1, true)
    end
    local context = canned.new(seen {})
    context.terminal = true
    assert.equal(2, require("loam.command").main({ "profile", "42", "-o", "-" }, context))
    assert.matches("standard output is a terminal", context.err, 1, true)
    local status
    status, context = canned.run("profile 42", {})
    assert.equal(1, status)
    assert.matches("process 42 cannot be read", context.err, 1, true)
  end)

  it("says that figures are not exact", function()
    local answer = figures { row("a", "plain", 1) }
    answer.inexact = true
    local status, context = canned.run("profile 42", { seen = { [42] = answer } })
    assert.equal(0, status)
    assert.matches("the figures are not exact", context.err, 1, true)
  end)
end)
