-- pages_spec.lua - `loam pages` draws the figures that it gets: their sums, their scale, and names
-- that could break the file.

local canned = require("canned_context")
local command = require("loam.command")
local picture = require("loam.command.pages.picture")
local svg = require("loam.command.pages.svg")

local MiB = 2 ^ 20

-- A group of cells, with sums that fit them.
local function group(cells, changes)
  local sums = { bytes = 0, live_bytes = 0, absent_bytes = 0, cached_bytes = 0, resident_bytes = 0,
                 swapped_bytes = 0, huge_bytes = 0, returned_bytes = 0 }
  for _, cell in ipairs(cells) do
    sums.bytes = sums.bytes + cell.bytes
    sums.live_bytes = sums.live_bytes + (cell.live or 0) + (cell.absent or 0)
    for _, name in ipairs { "absent", "cached", "resident", "swapped", "huge", "returned" } do
      sums[name .. "_bytes"] = sums[name .. "_bytes"] + (cell[name] or 0)
    end
  end
  sums.what, sums.strategy, sums.kind, sums.node = "strategy", "small", "host", 0
  for key, value in pairs(changes or {}) do sums[key] = value end
  sums.cells = cells
  return sums
end

local function answer(groups, changes)
  local all = group({})
  for _, one in ipairs(groups) do
    for key, value in pairs(one) do
      if key:find("bytes") then all[key] = all[key] + value end
    end
  end
  all.what, all.strategy, all.kind, all.node, all.cells = nil, nil, nil, nil, nil
  all.pid, all.generation, all.slot_bytes, all.cell_bytes = 42, 1, 65536, 65536
  all.node_step, all.map_bytes, all.provided_bytes = 1, 0, 0
  all.groups, all.largest = groups, {}
  for key, value in pairs(changes or {}) do all[key] = value end
  return all
end

local function slot(changes)
  local cell = { at = 0, bytes = 65536, kind = "small" }
  for key, value in pairs(changes) do cell[key] = value end
  return cell
end

local ABOUT = { program = "python3", pid = 42, generation = 1, policy = "prod",
                hash = "0123456789abcdef", date = "2026-01-01 00:00 UTC" }

-- Fails unless elements end in the right order, and no byte is one that XML forbids.
local function assert_well_formed(text)
  local open = {}
  assert.is_nil(text:find("[%z\1-\8\11\12\14-\31]"))
  assert.is_nil(text:gsub("&%a+;", ""):find("&"))
  for close, name, rest in text:gmatch("<(/?)(%a+)([^<>]*)>") do
    if close == "/" then
      assert.equal(table.remove(open), name)
    elseif rest:sub(-1) ~= "/" then
      open[#open + 1] = name
    end
  end
  assert.same({}, open)
end

-- Returns the numbers of the rectangles with this fill, except those of patterns.
local function rectangles(text, fill)
  local out = {}
  text = text:gsub("<defs>.*</defs>", "")
  for path in text:gmatch('<path d="([^"]*)" fill="' .. fill .. '"/>') do
    for x, y, w, h in path:gmatch("M([%d.]+) ([%d.]+)h([%d.]+)v([%d.]+)") do
      out[#out + 1] = { x = tonumber(x), y = tonumber(y), w = tonumber(w), h = tonumber(h) }
    end
  end
  return out
end

local BLUE = "#0072b2"

-- Returns the rectangles of live memory of the first strategy, without the mark beside its name.
local function live_of(groups, changes)
  local found = rectangles(picture.draw(answer(groups, changes), ABOUT), BLUE)
  table.remove(found, 1)
  return found
end

describe("the picture of loam pages", function()
  it("says what it shows, and all sums", function()
    local own = group({ slot { resident = 16384, kind = "metadata" } }, { what = "metadata" })
    own.strategy, own.kind = nil, nil
    local text = picture.draw(answer({
      group { slot { live = 32768, cached = 4096, resident = 65536, huge = 65536 },
              slot { absent = 65536, kind = "large", blocks = 1 } },
      own,
    }, { provided_bytes = 3 * MiB, largest = { { tag = "a.b", strategy = "s", bytes = 65536 } } }),
      ABOUT)
    assert_well_formed(text)
    for _, words in ipairs { "Memory of python3, process 42", "policy prod, hash 0123456789abcdef",
        "2026-01-01 00:00 UTC", "80 KiB in memory", "one cell is 64 KiB", ">32 KiB, 40%<",
        ">4 KiB, 5%<", ">28 KiB, 35%<", ">16 KiB, 20%<", ">64 KiB, 80%<", ">64 KiB<", "a.b in s",
        "loam's own memory", "Not shown: 3 MiB" } do
      assert.truthy(text:find(words, 1, true), words)
    end
  end)

  it("fills a cell to the part of it that is live", function()
    local function height(live)
      local found = live_of { group { slot { live = live, resident = 65536 } } }
      assert.equal(1, #found)
      return found[1].h
    end
    local full = height(65536)
    assert.near(full / 2, height(32768), 0.06)
    assert.near(full / 4, height(16384), 0.06)
    assert.near(0.8, height(16), 0.06) -- at least a visible height
    local _, below = unpack(live_of { group { slot { live = 65536, resident = 65536 },
                                              slot { live = 32768, resident = 65536 } } })
    assert.near(full / 2, below.h, 0.06)
  end)

  it("joins the cells of one large block, and no others", function()
    local function block(blocks)
      return slot { kind = "large", live = 65536, resident = 65536, blocks = blocks }
    end
    assert.equal(1, #live_of { group { block(1), block(), block() } })
    assert.equal(2, #live_of { group { block(1), block(), block(1) } })
    local small = slot { live = 65536, resident = 65536 }
    assert.equal(2, #live_of { group { small, small } })
  end)

  it("draws a narrower cell for less memory, and says the scale", function()
    local function width(bytes)
      local full = slot { live = bytes, resident = bytes, bytes = bytes }
      return live_of({ group { full } }, { cell_bytes = 4 * 65536 })[1].w
    end
    assert.near(width(4 * 65536) / 2, width(2 * 65536), 0.06)
    local text = picture.draw(answer({}, { cell_bytes = 32 * MiB }), ABOUT)
    assert.truthy(text:find("one cell is 32 MiB", 1, true))
  end)

  it("writes the size of much memory that is not there", function()
    local gap = slot { bytes = 96 * 65536, kind = "returned", returned = 96 * 65536 }
    local text = picture.draw(answer { group { slot { live = 1, resident = 4096 }, gap } }, ABOUT)
    assert_well_formed(text)
    assert.truthy(text:find(">6 MiB</text>", 1, true))
  end)

  it("shows the memory of each node apart, in one colour", function()
    local cell = slot { live = 65536, resident = 65536 }
    local text = picture.draw(answer { group({ cell }), group({ cell }, { node = 1 }),
      group({ cell }, { strategy = "other", asks_huge = "thp" }) }, ABOUT)
    assert_well_formed(text)
    assert.equal(4, #rectangles(text, BLUE)) -- two cells and two marks
    assert.truthy(text:find(">node 1<", 1, true))
    assert.truthy(text:find("node 0 \194\183 asks for huge pages", 1, true))
  end)

  it("is a whole file whatever names and tags are", function()
    for _, name in ipairs { "", "<b>&\"'", "\27[31m\0\1\127", "\255\254\192", ("x"):rep(5000),
        ("\195\164"):rep(300), "]]>" } do
      local about = setmetatable({ program = name, policy = name }, { __index = ABOUT })
      local text = picture.draw(answer({ group({ slot { live = 1, resident = 4096 } },
        { strategy = name, kind = name }) },
        { largest = { { tag = name, strategy = name, bytes = 5 } } }), about)
      assert_well_formed(text)
      assert.is_true(#text < 20000)
    end
  end)

  it("is drawn without any memory", function()
    assert_well_formed(picture.draw(answer {}, ABOUT))
  end)

  it("has a bounded size", function()
    local cells = {}
    for i = 1, 8192 do
      cells[i] = slot { live = i % 7 * 4096, cached = 4096, resident = 57344, absent = 100,
                        huge = 8192 }
    end
    local text = picture.draw(answer { group(cells) }, ABOUT)
    assert.is_true(#text < 1.5 * MiB, #text)
  end)
end)

describe("shorten", function()
  it("keeps whole characters", function()
    assert.equal("abc", svg.shorten("abc", 5))
    assert.equal("abcde", svg.shorten("abcde", 5))
    assert.equal("ab...", svg.shorten("abcdef", 5))
    assert.equal("\195\164\195\164...", svg.shorten(("\195\164"):rep(6), 5))
  end)
end)

describe("loam pages", function()
  local ANSWER = answer { group { slot { live = 32768, resident = 65536 } } }
  local ROW = { pid = 42, program = "py thon/3", state = "running", generation = 1, name = "prod",
                hash = "00000000deadbeef" }

  -- Runs the command. `refused` is the reason why no file can be written, or nil.
  local function run(words, answers, refused)
    local context = canned.new(answers)
    context.files = {}
    context.posix.readlink = function() return "/usr/bin/other" end
    context.posix.write = function(path, text)
      if refused then return nil, path .. ": " .. refused end
      context.files[path] = text
      return true
    end
    local args = {}
    for word in words:gmatch("%S+") do args[#args + 1] = word end
    return command.main(args, context), context
  end

  it("writes a file that is named after the program, and says so", function()
    local status, context = run("pages 42", { pages = { [42] = ANSWER }, boards = { ROW } })
    assert.equal(0, status)
    assert.equal("py_thon_3-42.svg: 1 cell of 64 KiB, 64 KiB in memory, 50% of it live\n"
      .. "STRATEGY  NODE  IN MEMORY    LIVE  CACHED    FREE  HUGE PAGES\n"
      .. "small        0     64 KiB  32 KiB     0 B  32 KiB         0 B\n", context.out)
    local text = context.files["py_thon_3-42.svg"]
    assert.truthy(text:find("policy prod, hash 00000000deadbeef", 1, true))
  end)

  it("shows the memory of each strategy in a table", function()
    local large = group({ slot { live = 4096, absent = 8192, cached = 8192, resident = 65536,
      huge = 65536 } }, { strategy = "", asks_huge = "thp" })
    large.node = nil
    local own = group({ slot { resident = 4096 } }, { what = "metadata" })
    own.strategy = nil
    local _, context = run("pages 42", { pages = { [42] = answer { large, own } } })
    local lines = context.out:gsub(" +", " ")
    assert.matches("\na strategy without a name ? 64 KiB 4 KiB 8 KiB 52 KiB 64 KiB (asks for them)"
      .. "\nloam's own memory 0 4 KiB - - - 0 B\n", lines, 1, true)
  end)

  it("leaves strategies without memory out of the table, as an edit leaves them behind", function()
    local used = group { slot { live = 4096, resident = 65536 } }
    local absent = group({ slot { absent = 4096 } }, { strategy = "absent" })
    local left = group({ slot {} }, { strategy = "left" })
    left.node = nil
    local _, context = run("pages 42", { pages = { [42] = answer { used, absent, left } } })
    assert.truthy(context.out:find("\nsmall ", 1, true))
    assert.truthy(context.out:find("\nabsent ", 1, true))
    assert.is_nil(context.out:find("\nleft ", 1, true))
  end)

  it("does not name the policy of another generation", function()
    local row = { pid = 42, state = "running", generation = 2, name = "prod", hash = "1" }
    local _, context = run("pages 42 -o x.svg", { pages = { [42] = ANSWER }, boards = { row } })
    assert.truthy(context.files["x.svg"]:find("policy not known", 1, true))
    _, context = run("pages 42", { pages = { [42] = ANSWER } })
    assert.truthy(context.files["other-42.svg"]:find("policy not known", 1, true))
  end)

  it("writes to standard output, and in JSON", function()
    local _, context = run("pages 42 --output -", { pages = { [42] = ANSWER } })
    assert.matches("^<svg ", context.out)
    assert.same({}, context.files)
    _, context = run("pages 42 --json", { pages = { [42] = ANSWER } })
    assert.matches('^{"verb":"pages","version":1,"ok":true,', context.out)
    assert.same({}, context.files)
  end)

  it("tells why it draws nothing", function()
    local status, context = run("pages 42", {})
    assert.equal(1, status)
    assert.equal("loam: process 42 cannot be read\n", context.err)
    status, context = run("pages 42 -o /no/x", { pages = { [42] = ANSWER } }, "No such file")
    assert.equal(1, status)
    assert.equal("loam: cannot write /no/x: No such file\n", context.err)
    status, context = run("pages 42 --json -o x", {})
    assert.equal(2, status)
    assert.matches("does not go with --output", context.err, 1, true)
    status, context = run("pages", {})
    assert.equal(1, status)
    assert.matches("no program of yours runs under loam", context.err, 1, true)
  end)

  it("says that the figures are not exact", function()
    local changing = answer({}, { inexact = true })
    local _, context = run("pages 42", { pages = { [42] = changing } })
    assert.matches("the figures are not exact", context.out, 1, true)
  end)
end)
