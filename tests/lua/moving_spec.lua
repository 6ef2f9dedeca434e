-- moving_spec - loam rebalance and loam demote against hosts of canned answers.

local cli = require("loam.cli")
local cli_world = require("cli_world")

local new_world, run = cli_world.new, cli_world.run

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
    local status, world = run("rebalance 42 --rate 2MiB --tag tensor", answers)
    assert.equal(0, status)
    assert.same({ "rebalance rate=2097152 tag=tensor", "moved", "moved" }, world.queries)
    assert.equal("TAG                BYTES  BLOCKS  WHY\n"
      .. "tensor  moved    512 MiB       2\n"
      .. "\"\"      refused    1 MiB       7  it shares its pages\n"
      .. "512 MiB moved, 0 B were right, 1 MiB refused\n", (world.out:gsub(" +\n", "\n")))
    assert.equal("", world.err)
  end)

  it("ends where it is interrupted", function()
    local world = new_world { [42] = { one_by_one = {
      job(true, 0, 0), job(true, 2 ^ 29, 0), job(false, 2 ^ 29, 0) } } }
    world.waits, world.terminal = { true }, true
    assert.equal(130, cli.main({ "rebalance", "42" }, world))
    assert.same({ "rebalance", "move stop", "moved" }, world.queries)
    assert.matches(" 50%  0 B moved", world.err, 1, true)
  end)

  it("fails where another job takes the place of its own", function()
    local other = job(true, 0, 0)
    other.job, other.by_reload = 4, true
    local answers = { [42] = { one_by_one = { job(true, 0, 0), other } } }
    local status, world = run("rebalance 42", answers)
    assert.equal(1, status)
    assert.equal("", world.out)
    assert.matches('process 42 moves live memory anew, by a reload with apply = "live"', world.err,
      1, true)
    other.by_reload = false
    status, world = run("rebalance 42", { [42] = { one_by_one = { job(true, 0, 0), other } } })
    assert.equal(1, status)
    assert.matches("process 42 has been told to move live memory again", world.err, 1, true)
  end)

  it("fails where the program stopped it", function()
    local status, world = run("rebalance 42", { [42] = { one_by_one = {
      job(true, 0, 0), job(false, 2 ^ 29, 2 ^ 29, ROWS) } } })
    assert.equal(1, status)
    assert.matches("512 MiB moved", world.out, 1, true)
    assert.matches("process 42 stopped it at 50%", world.err, 1, true)
  end)

  it("gives the report as it came", function()
    local answer = '{"ok":true,"running":false,"bytes":0,"done":0}\n'
    local _, world = run("rebalance 42 --json", { [42] = answer })
    assert.equal(answer, world.out)
  end)

  it("demotes by tag, age and place", function()
    local answers = { [42] = job(false, 2 ^ 30, 0) }
    local _, world = run("demote 42 --tag a.b --older 60 --to node=3", answers)
    assert.same({ "demote to=node node=3 older=60 tag=a.b" }, world.queries)
    assert.same({ "demote to=cold tag=x" }, select(2, run("demote 42 --tag x --to cold",
      answers)).queries)
    assert.same({ "demote to=node tag=x" }, select(2, run("demote 42 --tag x", answers)).queries)
    assert.equal(2, (run("demote 42 --tag x --to up", answers)))
    assert.equal(2, (run("demote 42", answers)))
  end)

  it("says why it cannot", function()
    local status, world = run("rebalance 42",
      { [42] = { ok = false, error = "it is being moved" } })
    assert.equal(1, status)
    assert.matches("it is being moved", world.err, 1, true)
  end)
end)
