-- moving_spec.lua - `loam rebalance` and `loam demote` against hosts of canned answers.

local command = require("loam.command")
local canned_context = require("canned_context")

local new_context, run = canned_context.new, canned_context.run

describe("loam rebalance and demote", function()
  local function job(running, done, moved, rows)
    return { ok = true, job = 3, running = running, bytes = 2 ^ 30, done = done, moved = moved,
             right = 0, refused = 2 ^ 20, rows = rows or {} }
  end

  local ROWS = {
    { tag = "", what = "refused", why = "it shares its pages", bytes = 2 ^ 20, blocks = 7 },
    { tag = "tensor", what = "moved", why = "", bytes = 2 ^ 29, blocks = 2 },
  }

  it("waits for the end, shows how far it is, and reports by tag", function()
    local answers = { [42] = { one_by_one = {
      job(true, 0, 0), job(true, 2 ^ 29, 2 ^ 28), job(false, 2 ^ 30, 2 ^ 29, ROWS) } } }
    local status, context = run("rebalance 42 --rate 2MiB --tag tensor", answers)
    assert.equal(0, status)
    assert.same({ "rebalance rate=2097152 tag=tensor", "moved", "moved" }, context.queries)
    assert.equal("TAG     RESULT     BYTES  BLOCKS  WHY\n"
      .. "tensor  moved    512 MiB       2\n"
      .. "\"\"      refused    1 MiB       7  it shares its pages\n"
      .. "512 MiB moved, 0 B in place already, 1 MiB refused\n", (context.out:gsub(" +\n", "\n")))
    assert.equal("", context.err)
  end)

  it("shows the table that --help shows", function()
    local rows = { { tag = "a", what = "right", why = "", bytes = 1, blocks = 1 } }
    for _, verb in ipairs { "rebalance", "demote" } do
      local _, report = run(verb .. " 42 --tag a", { [42] = job(false, 2 ^ 30, 0, rows) })
      local head = report.out:match("^[^\n]*"):gsub(" +", " ")
      local _, help = run(verb .. " --help")
      assert.matches("\n " .. head .. "\n", (help.out:gsub(" +", " ")), 1, true)
      assert.matches("\na +in place +1 B +1\n", report.out)
      assert.matches("in place already", help.out, 1, true)
    end
  end)

  it("fails where the tag has no memory", function()
    local none = job(false, 2 ^ 30, 0)
    none.refused = 0
    for _, args in ipairs { "rebalance 42 --tag a.b", "demote 42 --tag a.b" } do
      local status, context = run(args, { [42] = none })
      assert.equal(1, status)
      assert.equal("", context.out)
      assert.equal("loam: process 42 has no memory of tag 'a.b', or of a tag under it\n",
        context.err)
      status, context = run(args .. " --json", { [42] = none })
      assert.equal(1, status)
      assert.matches('"ok":false,"error":"process 42 has no memory of tag', context.out, 1, true)
      assert.matches('"rows":', context.out, 1, true)
      assert.equal(1, select(2, context.out:gsub("\n", "")))
    end
    assert.equal(0, (run("rebalance 42", { [42] = none })))
  end)

  it("ends where it is interrupted", function()
    local context = new_context { [42] = { one_by_one = {
      job(true, 0, 0), job(true, 2 ^ 29, 0), job(false, 2 ^ 29, 0) } } }
    context.waits, context.terminal = { true }, true
    assert.equal(130, command.main({ "rebalance", "42" }, context))
    assert.same({ "rebalance", "move stop", "moved" }, context.queries)
    assert.matches(" 50%  0 B moved", context.err, 1, true)
    context = new_context { [42] = { one_by_one = {
      job(true, 0, 0), job(true, 2 ^ 29, 0), job(false, 2 ^ 29, 0) } } }
    context.waits = { 15 }
    assert.equal(143, command.main({ "rebalance", "42", "--json" }, context))
    assert.matches('"ok":false,"error":"a signal stopped the move",', context.out, 1, true)
  end)

  it("fails where another job takes the place of its own", function()
    local other = job(true, 0, 0)
    other.job, other.by_reload = 4, true
    local answers = { [42] = { one_by_one = { job(true, 0, 0), other } } }
    local status, context = run("rebalance 42", answers)
    assert.equal(1, status)
    assert.equal("", context.out)
    assert.matches('process 42 has started another move, by a reload with apply = "live": the '
      .. "result of this one is unknown", context.err, 1, true)
    other.by_reload = false
    status, context = run("rebalance 42", { [42] = { one_by_one = { job(true, 0, 0), other } } })
    assert.equal(1, status)
    assert.matches("process 42 has started another move, by another command", context.err, 1, true)
  end)

  it("fails where the program stopped it", function()
    local status, context = run("rebalance 42", { [42] = { one_by_one = {
      job(true, 0, 0), job(false, 2 ^ 29, 2 ^ 29, ROWS) } } })
    assert.equal(1, status)
    assert.matches("512 MiB moved", context.out, 1, true)
    assert.matches("process 42 ended the move at 50%", context.err, 1, true)
  end)

  it("gives the report as it came", function()
    local head, rest = '{"verb":"rebalance","version":1,"ok":true,', '"running":false,"bytes":0}\n'
    local _, context = run("rebalance 42 --json", { [42] = '{"ok":true,"done":0,' .. rest })
    assert.equal(head .. '"done":0,' .. rest, context.out)
  end)

  it("demotes by tag, age and place", function()
    local answers = { [42] = job(false, 2 ^ 30, 0) }
    local _, context = run("demote 42 --tag a.b --older 60 --to node=3", answers)
    assert.same({ "demote to=node node=3 older=60 tag=a.b" }, context.queries)
    for text, seconds in pairs { ["10m"] = 600, ["48h"] = 172800, ["90s"] = 90, ["1.5"] = 2 } do
      assert.same({ ("demote to=node older=%d tag=x"):format(seconds) },
        select(2, run("demote 42 --tag x --older " .. text, answers)).queries)
    end
    assert.equal(2, (run("demote 42 --tag x --older 600000h", answers)))
    assert.same({ "demote to=cold tag=x" }, select(2, run("demote 42 --tag x --to cold",
      answers)).queries)
    assert.same({ "demote to=node tag=x" }, select(2, run("demote 42 --tag x", answers)).queries)
    assert.same({ "demote to=node node=1 tag=x" },
      select(2, run("demote 42 --tag x --to node=+0", answers)).queries)
    local status, wrong = run("demote 42 --tag x --to node=near", answers)
    assert.equal(2, status)
    assert.matches("'node=near' is not possible: nodes are written as 0-3, 0,2, !1, +0 or all",
      wrong.err, 1, true)
    assert.equal(2, (run("demote 42 --tag x --to up", answers)))
    assert.equal(2, (run("demote 42", answers)))
  end)

  it("says why it cannot", function()
    local status, context = run("rebalance 42",
      { [42] = { ok = false, error = "it is being moved" } })
    assert.equal(1, status)
    assert.matches("it is being moved", context.err, 1, true)
  end)
end)
