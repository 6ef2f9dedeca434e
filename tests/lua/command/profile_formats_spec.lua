-- profile_formats_spec.lua - profiles as data, and the formats in which they are written and read.

local collapsed = require("loam.command.profile.collapsed")
local gzip = require("loam.command.profile.gzip")
local json = require("loam.report.json")
local pprof = require("loam.command.profile.pprof")
local pprof_read = require("loam.command.profile.pprof_read")
local profile = require("loam.command.profile.profile")
local speedscope = require("loam.command.profile.speedscope")
local svg = require("loam.command.profile.svg")
local svg_text = require("loam.command.profile.svg_text")
local profile_text = require("loam.command.profile.text")

-- Makes a profile with everything that a format can contain: tags, frames of Python, addresses with
-- and without functions, an inlined function, labels with any bytes, large and negative numbers.
local function rich()
  local made = profile.new()
  local function tag(name) return profile.add_frame(made, { name = name, kind = "tag" }) end
  local arrays = profile.add_frame(made, { name = "arrays", kind = "strategy" })
  profile.add(made, { tag("tensor"), tag("tensor.weights"), arrays }, { 10, 2 ^ 40, 3, 2 ^ 30 + 5 },
    { { key = "tag", text = "tensor.weights" }, { key = "bytes", number = 4096, unit = "bytes" } })
  local mapping = profile.add_mapping(made, { from = 0x7f0000000000, to = 0x7f0000010000,
    offset = 4096, file = "/usr/lib/libfoo.so", build_id = "abcdef0123", has_functions = true })
  local function native(name, line)
    return { func = profile.add_function(made, { name = name, file = "a.c", line = 1,
      system_name = "_Z" .. name }), line = line }
  end
  local python = profile.add_frame(made, { name = "train", file = "train.py", line = 3 }, 17)
  local bare = profile.add_location(made, { address = 0x7f0000001234, mapping = mapping,
    lines = {} })
  local known = profile.add_location(made, { address = 0x7f0000001238, mapping = mapping,
    lines = { native("inner", 4), native("outer", 11) } })
  profile.add(made, { python, bare, known }, { 2 ^ 53, -5, 1, -2 ^ 35 },
    { { key = "tag", text = 'q"uo\nte\255;' } })
  made.time_ns, made.comments = 2 ^ 60, { "one" }
  made.period_type, made.period = { type = "space", unit = "bytes" }, 524288
  return made
end

describe("a profile", function()
  it("sums samples with equal stacks and labels, and no others", function()
    local made = profile.new()
    local stack = { profile.add_frame(made, { name = "a" }) }
    profile.add(made, stack, { 1, 2, 3, 4 })
    profile.add(made, { profile.add_frame(made, { name = "a" }) }, { 1, 2, 3, 4 })
    profile.add(made, stack, { 1, 1, 1, 1 }, { { key = "tag", text = "a" } })
    assert.equal(2, #made.samples)
    assert.equal(1, #made.locations)
    assert.equal(9, profile.total(made, 4))
  end)

  it("names a location without a function by its file and its address there", function()
    local names = {}
    for i, frame in ipairs(profile.stack_frames(rich().samples[2].stack)) do
      names[i] = frame.name
    end
    assert.same({ "train", "libfoo.so+0x2234", "outer", "inner" }, names)
  end)
end)

describe("pprof", function()
  it("reads what it wrote, to the byte", function()
    local made = rich()
    for _, text in ipairs { pprof.message(made), pprof.write(made) } do
      local again = assert(pprof_read.read(text))
      assert.equal(#made.samples, #again.samples)
      assert.same({ 2 ^ 53, -5, 1, -2 ^ 35 }, again.samples[2].values)
      assert.equal('q"uo\nte\195\191;', again.samples[2].labels[1].text)
      assert.equal("abcdef0123", again.mappings[1].build_id)
      assert.equal("outer", again.samples[2].stack[3].lines[2].func.name)
      assert.equal("_Zouter", again.samples[2].stack[3].lines[2].func.system_name)
      assert.equal(pprof.message(made), pprof.message(again))
    end
    assert.is_true(gzip.is_packed(pprof.write(made)))
  end)

  it("refuses each file that is cut off or changed, or reads it, without a fault", function()
    local text = pprof.message(rich())
    for length = 0, #text - 1 do
      local made, words = pprof_read.read(text:sub(1, length))
      assert.is_true(made ~= nil or type(words) == "string")
    end
    for at = 1, #text do
      for _, byte in ipairs { 0, 1, 127, 128, 255 } do
        local changed = text:sub(1, at - 1) .. string.char(byte) .. text:sub(at + 1)
        local made, words = pprof_read.read(changed)
        assert.is_true(made ~= nil or type(words) == "string")
      end
    end
  end)

  it("says why a file is no profile", function()
    local packed = pprof.write(rich())
    local function words(text) return select(2, pprof_read.read(text)) end
    assert.equal("it is empty", words(""))
    assert.equal("it is cut off", words(packed:sub(1, -20)))
    assert.matches("incorrect data check", words(packed:sub(1, -9) .. "12345678"))
    assert.equal("it has no types of samples", words("\80\1"))
    assert.is_string(words("return loam.policy {}\n"))
    assert.equal("a number has more than 64 bits", words(("\255"):rep(11)))
  end)
end)

describe("gzip", function()
  it("leaves a text plain where the system has no zlib, and says what it cannot read", function()
    local NAME, ffi = "loam.command.profile.gzip", package.loaded.ffi
    package.loaded[NAME] = nil
    package.loaded.ffi = { load = function() error("libz.so.1: cannot open") end }
    local without = require(NAME)
    assert.equal("text", without.compress("text"))
    assert.is_false(without.is_there())
    assert.equal("it is compressed, and this system has no libz.so.1",
      select(2, without.uncompress(gzip.compress("text"))))
    package.loaded[NAME], package.loaded.ffi = gzip, ffi
  end)
end)

describe("speedscope", function()
  it("gets one profile for each type, of the samples that are positive", function()
    local answer = json.decode(speedscope.write(rich(), "loam 1"))
    assert.equal(4, #answer.profiles)
    assert.equal(3, answer.activeProfileIndex)
    local shown = answer.profiles[4]
    assert.equal("bytes", shown.unit)
    assert.same({ 2 ^ 30 + 5 }, shown.weights)
    assert.equal(2 ^ 30 + 5, shown.endValue)
    assert.equal("tensor.weights", answer.shared.frames[shown.samples[1][2] + 1].name)
  end)

  it("gets what became more and what became less apart", function()
    local made = rich()
    made.is_difference = true
    local answer = json.decode(speedscope.write(made, "loam 1"))
    assert.equal("inuse_space: less", answer.profiles[8].name)
    assert.same({ 2 ^ 35 }, answer.profiles[8].weights)
    assert.equal(6, answer.activeProfileIndex)
  end)
end)

describe("collapsed stacks", function()
  it("have a line for each stack, whatever bytes a name has", function()
    local made = profile.new()
    for _, name in ipairs { "a;b", "two\nlines", "no \255 text", "a;b" } do
      profile.add(made, { profile.add_frame(made, { name = name }) }, { 0, 0, 1, 5 },
        { { key = "n", number = #made.samples } })
    end
    assert.equal("a\\059b 10\nno \195\191 text 5\ntwo\\010lines 5\n", collapsed.write(made, 4))
    assert.equal("", collapsed.write(made, 1))
  end)

  it("have the values of the base and of now in a difference", function()
    local made = profile.new()
    local sample = profile.add(made, { profile.add_frame(made, { name = "gone" }) },
      { 0, 0, -1, -5 })
    made.is_difference, sample.before = true, { 0, 0, 1, 5 }
    assert.equal("gone 5 0\n", collapsed.write(made, 4))
  end)
end)

describe("text for reading", function()
  it("has the largest stacks first, with the innermost function first", function()
    local made = profile.new()
    local main = profile.add_frame(made, { name = "main", file = "a.c" }, 28)
    local leak = profile.add_frame(made, { name = "leak\n", file = "a.c" }, 12)
    local bare = profile.add_location(made, { address = 0x1234, lines = {} })
    profile.add(made, { main, bare }, { 0, 0, 1, 1024 })
    profile.add(made, { main, leak }, { 0, 0, 1, 2048 }, { { key = "tag", text = "a" } })
    profile.add(made, { main, leak }, { 0, 0, 1, 1024 }, { { key = "tag", text = "b" } })
    profile.add(made, { main }, { 1, 10, 0, 0 })
    made.title = "a (1): about 4 KiB live"
    assert.equal("a (1): about 4 KiB live\n\n"
      .. "inuse_space 3 KiB, 75.0%\n    leak\\010  a.c:12\n    main  a.c:28\n\n"
      .. "inuse_space 1 KiB, 25.0%\n    0x1234\n    main  a.c:28\n", profile_text.write(made, 4))
    assert.equal("a (1): about 4 KiB live\n\nalloc_objects 1, 100.0%\n    main  a.c:28\n",
      profile_text.write(made, 1))
  end)

  it("says in a difference what grew, and last what shrank", function()
    local made = profile.new()
    local function add(name, change, before)
      local sample = profile.add(made, { profile.add_frame(made, { name = name }) },
        { 0, 0, 0, change })
      sample.before = { 0, 0, 0, before }
    end
    add("gone", -5, 5)
    add("alike", 0, 7)
    add("grown", 2048, 1024)
    made.is_difference = true
    assert.equal("\ninuse_space 2 KiB more, now 3 KiB\n    grown\n"
      .. "\ninuse_space 5 B less, now 0 B\n    gone\n", profile_text.write(made, 4))
    assert.equal("\nalloc_objects: no stack has changed\n", profile_text.write(made, 1))
  end)
end)

describe("text in a picture", function()
  it("is safe in XML, whatever bytes it has", function()
    assert.equal("&lt;a&gt; &amp; &quot;b&quot;", svg_text.escape('<a> & "b"'))
    assert.equal("\239\191\189 \195\191 \239\191\189 \195\191",
      svg_text.escape("\0 \255 \239\191\191 \195\191"))
  end)

  it("fits its room, without a part of a character", function()
    for _, text in ipairs { "tensor.weights", ("\195\164"):rep(20), "\226\130\172uro", "WWW" } do
      for room = 0, 200 do
        local fit = svg_text.fit(text, 12, room)
        assert.is_true(svg_text.width(fit, 12) <= room)
        assert.is_true(fit == json.repaired(fit))
      end
    end
    assert.equal("tensor.weights", svg_text.fit("tensor.weights", 12, 200))
    assert.matches("^tensor.*\226\128\166$", svg_text.fit("tensor.weights", 12, 70))
  end)
end)

describe("a flame graph", function()
  it("draws frames that are too narrow as one, and bounds the file", function()
    local made = profile.new()
    for i = 1, 5000 do
      profile.add(made, { profile.add_frame(made, { name = "tag" .. i, kind = "tag" }) },
        { 1, 1, 1, i <= 2 and 1e6 or 1 })
    end
    local text = svg.write(made, 4)
    assert.matches("<title>4,998 more under all\ninuse_space: 4.9 KiB, 0.2%%</title>", text)
    assert.is_true(#text < 5000)
  end)

  it("says that there is nothing to show", function()
    assert.matches("There is no memory to show", svg.write(profile.new(), 4))
  end)
end)
