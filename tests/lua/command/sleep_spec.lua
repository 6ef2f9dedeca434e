-- sleep_spec.lua - `loam sleep` and `loam wake` against hosts of canned answers.

local run = require("canned_context").run

describe("loam sleep and wake", function()
  local function slept(bytes, asleep) return { ok = true, bytes = bytes, asleep_bytes = asleep } end

  it("names the place and the tag", function()
    local function query(args)
      local status, context = run(args, { [42] = slept(2 ^ 30, 2 ^ 30) })
      assert.equal(0, status)
      assert.equal("1 GiB asleep\n", context.out)
      return context.queries
    end
    assert.same({ "sleep pinned tag=model.a" }, query("sleep 42 --tag model.a"))
    assert.same({ "sleep discard tag=a" }, query("sleep 42 --tag a --to discard"))
    assert.same({ "sleep /var/tmp tag=a" }, query("sleep 42 --tag a --to /var/tmp"))
    assert.same({ "sleep /cwd/there tag=a" }, query("sleep 42 --tag a --to there"))
    local _, context = run("wake 42 --tag model.a", { [42] = slept(2 ^ 30, 0) })
    assert.same({ "wake model.a" }, context.queries)
    assert.equal("1 GiB awake\n", context.out)
    assert.same({ "wake" }, select(2, run("wake 42", { [42] = slept(0, 0) })).queries)
  end)

  it("has nothing to do where memory sleeps already, or is awake", function()
    local status, context = run("sleep 42 --tag a", { [42] = slept(0, 2 ^ 20) })
    assert.equal(0, status)
    assert.equal("1 MiB was asleep already\n", context.out)
    status, context = run("wake 42", { [42] = slept(0, 0) })
    assert.equal(0, status)
    assert.equal("0 B awake\n", context.out)
  end)

  it("takes no empty tag for all memory", function()
    for _, args in ipairs { "sleep 42", "wake 42", "demote 42", "rebalance 42" } do
      local status, context = run(args .. " --tag=", { [42] = slept(2 ^ 30, 0) })
      assert.equal(2, status)
      assert.matches("%-%-tag: the tag is empty\n", context.err)
      assert.same({}, context.queries)
    end
  end)

  it("fails where the tag has no memory that can sleep", function()
    local status, context = run("sleep 42 --tag a.b", { [42] = slept(0, 0) })
    assert.equal(1, status)
    assert.equal("", context.out)
    assert.equal("loam: process 42 has no device memory of tag 'a.b', or of a tag under it, that "
      .. "can sleep\n", context.err)
    status, context = run("sleep 42 --tag a.b --json", { [42] = slept(0, 0) })
    assert.equal(1, status)
    assert.matches('"ok":false,"error":"process 42 has no device memory', context.out, 1, true)
  end)

  it("says why it cannot", function()
    for _, args in ipairs { "sleep 42 --tag a", "wake 42" } do
      local status, context = run(args, { [42] = { ok = false, error = "no memory is free" } })
      assert.equal(1, status)
      assert.matches("no memory is free", context.err, 1, true)
    end
  end)

  it("refuses arguments that it cannot pass on", function()
    assert.equal(2, (run("sleep 42", {})))
    assert.equal(2, (run("sleep --tag a", {})))
    assert.equal(2, (run("wake", {})))
    local status, context = run("sleep 42 --tag a --to=", {})
    assert.equal(2, status)
    assert.matches("--to: '' is not possible", context.err, 1, true)
  end)

  it("gives the answer as it came", function()
    local _, context = run("sleep 42 --tag a --json",
      { [42] = '{"ok":true,"bytes":5,"asleep_bytes":7}\n' })
    assert.equal('{"verb":"sleep","version":1,"ok":true,"bytes":5,"asleep_bytes":7}\n', context.out)
  end)
end)
