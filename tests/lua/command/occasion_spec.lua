-- occasion_spec.lua - `loam profile --on`: which events are occasions, and reads that fail.

local boards = require("loam.command.boards")
local canned = require("canned_context")
local json = require("loam.report.json")
local occasion = require("loam.command.profile.occasion")

local MiB = 2 ^ 20

local function figures(more)
  local answer = { pid = 42, generation = 1, failed = 0, denied = 0, live_bytes = MiB,
                   live_blocks = 1, total_bytes = MiB, total_blocks = 1,
                   rows = { { tag = "x", strategy = "kept", kind = "host", live_bytes = MiB,
                              live_blocks = 1, total_bytes = MiB, total_blocks = 1,
                              limit = 10 * MiB, limit_used = MiB } } }
  for key, value in pairs(more or {}) do answer[key] = value end
  return answer
end

local function used(bytes)
  local answer = figures()
  answer.rows[1].limit_used = bytes
  return answer
end

local MOST = 500 -- reads; after so many the command should have ended

-- Runs `loam profile 42 --on ...`. `looks` has the results of its reads, one after another:
-- figures, or the text of a failure. The last result is repeated. `status` is the row of the board.
local function run(on, looks, status, prepare)
  local n = 0
  local answers = {
    seen = { [42] = figures() },
    boards = { status },
    figures = { [42] = function()
      n = n + 1
      assert(n <= MOST, "the command does not end")
      return looks[math.min(n, #looks)]
    end },
  }
  local context
  local result = canned.run("profile 42 --format collapsed -o - --on " .. on, answers, nil, nil,
    function(made)
      context = made
      if prepare then prepare(made, answers) end
    end)
  return result, context, n
end

local function ended(announced)
  return { pid = 42, program = "a", state = "ended", announced = announced, updated_at = 0,
           ended_at = 1, folder = "/" }
end

local function gone(context)
  context.posix.program = function() return nil end
end

describe("an occasion for a profile", function()
  it("is a limit that is as full as the user says", function()
    local status, context, looks = run("near-limit=80%",
      { used(MiB), used(7.9 * MiB), used(8 * MiB) })
    assert.equal(0, status)
    assert.equal(3, looks)
    assert.matches("strategy 'kept' uses 80% of its limit, 10 MiB", context.err, 1, true)
    status = run("near-limit", { used(8.9 * MiB), used(9 * MiB) })
    assert.equal(0, status)
  end)

  it("is a request that failed or was denied since the first look", function()
    for _, kind in ipairs { "failed", "denied" } do
      local status, context, looks = run("failed",
        { figures { [kind] = 3 }, figures { [kind] = 3 }, figures { [kind] = 5 } })
      assert.equal(0, status)
      assert.equal(3, looks)
      assert.matches("2 requests got no memory", context.err, 1, true)
    end
  end)

  it("is not a look that failed while the program lives", function()
    local status, _, looks = run("near-limit=50%", { used(MiB), "too late", "too late",
                                                     used(9 * MiB) })
    assert.equal(0, status)
    assert.equal(4, looks)
  end)

  it("is given up when look after look fails", function()
    local status, context, looks = run("signal", { "the kernel refuses" })
    assert.equal(1, status)
    assert.is_true(looks > 50)
    assert.matches("the kernel refuses", context.err, 1, true)
  end)

  it("is the last look at a program that a signal has ended", function()
    local status, context = run("signal", { figures(), "no such process" }, ended(false), gone)
    assert.equal(0, status)
    assert.matches("a signal has ended the program", context.err, 1, true)
    assert.matches("from 100 ms before its end was noticed", context.err, 1, true)
    assert.equal("x;kept 1048576\n", context.out)
  end)

  it("keeps the mappings of the look before where a program ends during a look", function()
    local find = boards.find
    boards.find = function() return { status = ended(false) } end
    for _, maps in ipairs { "", false } do
      local n = 0
      local context = {
        api = {
          figures = function()
            n = n + 1
            return n < 3 and json.encode(figures()) or nil, "no such process"
          end,
          look_samples = function() return "samples " .. n end,
        },
        posix = {
          clock = function() return n end, wait = function() return false end,
          program = function() return nil end,
          read = function() return n == 1 and "mappings 1" or maps or nil end,
        },
      }
      local _, last = occasion.wait(context, 42, { signal = true }, true)
      assert.same({ "samples 2", "mappings 1" }, { last.samples, last.maps })
    end
    boards.find = find
  end)

  it("is not waited for where the file cannot be written", function()
    for _, how in ipairs { "--on failed", "--stacks --for 1h" } do
      local status, context = canned.run("profile 42 -o /nowhere/x " .. how,
        { boards = { { pid = 42, board = "/run/b", state = "running", since_ms = 1 } } })
      assert.equal(1, status)
      assert.equal("loam: /nowhere/x: No space left on device\n", context.err)
    end
  end)

  it("is not the end of a program that says that it ends", function()
    local status, context = run("signal", { figures(), "no such process" }, ended(true), gone)
    assert.equal(1, status)
    assert.matches("process 42 has ended, and there was no occasion", context.err, 1, true)
    assert.equal("", context.out)
  end)

  it("gives the samples back as they were, also to a program that has not obeyed yet", function()
    local function idle(context, answers)
      answers.obeys = false
      answers.samples = { pid = 42, interval = 0, began = false, seconds = 0, live = 0,
                          live_lost = 0, unfit = 0, skipped = 0, stacks = {}, mappings = {} }
      answers.boards = { { pid = 42, board = "/run/b", state = "running", since_ms = 1,
                           program = "a", folder = "/" } }
      context.waits = {}
      for i = 1, 100 do context.waits[i] = false end -- the program obeys nothing in this time
      context.waits[101] = true -- the user interrupts the wait for an occasion
    end
    local status, context = run("failed --stacks", { figures() }, nil, idle)
    assert.equal(130, status)
    local wishes = {}
    for _, query in ipairs(context.queries) do wishes[#wishes + 1] = query:match("^wish.*") end
    assert.same({ "wish /run/b 42 524288", "wish /run/b 42 0" }, wishes)
  end)

  it("is one of the known words", function()
    for _, word in ipairs { "often", "near-limit=0%", "near-limit=101%", "near-limit=9",
                             "failed," } do
      local status, context = run(word, { figures() })
      assert.equal(2, status)
      assert.matches("is not possible; write near-limit=90%", context.err, 1, true)
    end
  end)
end)
