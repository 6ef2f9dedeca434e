-- plan_spec.lua - the table of `loam plan` from canned answers.

local canned_context = require("canned_context")

local run = canned_context.run

describe("loam plan", function()
  it("turns conditions into ranges of sizes", function()
    local function step(condition, holds)
      return { line = 1, condition = condition, holds = holds }
    end
    local _, context = run("plan p.lua --tag a", { plan = { ok = true, tag = "a",
      leaves = 4, rows = {
      { conditions = { step("req.size < 4096", true) }, strategy = "s", chain = { "s" }, line = 3 },
      { conditions = { step("req.size < 4096", false), step("req.size >= 4194304", false),
                       step("req.zero", false) }, strategy = "m", chain = { "m", "s" }, line = 4 },
      { conditions = { step("req.size == 100", true), step("req.tag:is(\"a\")", true),
                       step("req.zero", true) }, strategy = "e", chain = { "e" }, line = 5 },
      { conditions = { step("req.size % 4096 == 0", false) }, strategy = "o", chain = { "o" } },
      { conditions = { step("req.size % 4096 == 0", true) }, strategy = "o", chain = { "o" } },
    } } })
    assert.equal(table.concat({
      "tag a: 4 leaves",
      "SIZE              WHEN                        STRATEGY   LINE",
      "< 4 KiB                                       s          3",
      "4 KiB to < 4 MiB  not req.zero                m, else s  4",
      "100               req.zero                    e          5",
      "any               not (req.size % 4096 == 0)  o",
      "any               req.size % 4096 == 0        o",
      "",
    }, "\n"), context.out)
  end)

  it("does not read a negated equality as a range", function()
    local _, context = run("plan p.lua --tag a", { plan = { ok = true, tag = "a",
      leaves = 1, rows = {
      { conditions = { { line = 1, condition = "req.size == 5", holds = true } }, strategy = "t",
        chain = { "t" }, line = 2 },
      { conditions = { { line = 1, condition = "req.size == 5", holds = false } }, strategy = "s",
        chain = { "s" }, line = 3 } } } })
    assert.matches("any   not (req.size == 5)", context.out, 1, true)
  end)

  it("leaves out that the size is not another one", function()
    local function row(n, ...)
      local conditions = {}
      for i, holds in ipairs { ... } do
        conditions[i] = { line = 1, condition = "req.size == " .. 4096 * i, holds = holds }
      end
      return { conditions = conditions, strategy = "s", chain = { "s" }, line = n }
    end
    local _, context = run("plan p.lua --tag a", { plan = { ok = true, tag = "a", leaves = 3,
      rows = { row(1, true), row(2, false, true), row(3, false, false) } } })
    assert.matches("\n4 KiB +s +1\n8 KiB +s +2\nany +not %(req.size == 4096%) and not", context.out)
  end)
end)
