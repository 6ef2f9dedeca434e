-- metrics_memory_spec.lua - what `loam metrics` keeps of a program from one page to the next.

local canned = require("canned_context")
local collector = require("loam.command.metrics.collector")
local folded_tags = require("loam.command.metrics.folded_tags")

local function row(tag, strategy, limit)
  return { tag = tag, strategy = strategy, kind = "host", live_bytes = 1, live_blocks = 1,
           total_bytes = 1, total_blocks = 1, limit = limit, limit_used = limit and 1 }
end

describe("what is kept of a program", function()
  it("has one row of each strategy with a limit", function()
    local rows = { row("a", "free"), row("b", "tight", 64), row("c", "tight", 64),
                   row("d", "free") }
    local context = canned.new {
      boards = { { pid = 42, state = "running", since_ms = 5 } },
      seen = { [42] = { pid = 42, rows = rows } },
    }
    local found = collector.collect(collector.new(context, 200), 5000)[1]
    assert.equal(4, #found.series)
    assert.equal(1, #found.figures.rows)
    assert.equal("tight", found.figures.rows[1].strategy)
  end)

  it("is bounded if the program has other tags at each reading", function()
    local state = folded_tags.new()
    for i = 1, 2000 do
      folded_tags.fold(state, { row("t" .. i, "s"), row("u" .. i, "s"), row("same", "s") }, 2)
    end
    local tags, rows = 0, 0
    for _ in pairs(state.peak) do tags = tags + 1 end
    for _ in pairs(state.bytes) do rows = rows + 1 end
    assert.is_true(tags < 1100 and rows < 1100)
    assert.is_not_nil(state.peak.same)
  end)

  it("is bounded if the program has other strategies at each reading", function()
    local state, shown = folded_tags.new(), nil
    for i = 1, 2000 do shown = folded_tags.fold(state, { row("a", "s"), row("b", "s" .. i) }, 1) end
    local blocks = 0
    for _, sum in ipairs(shown) do blocks = blocks + sum.total_blocks end
    assert.is_true(#shown < 300)
    assert.equal(2001, blocks)
    assert.equal("other", shown[2].strategy)
  end)
end)
