-- lower_spec.lua - the graph is small and balanced, and its image has the layout of plan.h.

local support = require("support")
local core = support.core
local emit = require("loam.compiler.emit")
local lower = require("loam.compiler.lower")

local SIZE, LIVE = support.input("req.size"), support.input("req.live")

local function leaf(name) return { key = name, ids = { #name } } end

local function test(input, cmp, k, yes, no, line)
  return { condition = { input = input, cmp = cmp, k = k, negated = false }, yes = yes, no = no,
    line = line }
end

local function depth(cell)
  return cell.leaf and 0 or 1 + math.max(depth(cell.yes), depth(cell.no))
end

local function decide(cell, size)
  while not cell.leaf do cell = size < cell.k and cell.yes or cell.no end
  return cell.leaf.key
end

describe("lower", function()
  it("drops a test whose sides are the same", function()
    local cell = lower.run(test(SIZE, "lt", 5, leaf("a"), leaf("a")))
    assert.equal("a", cell.leaf.key)
    cell = lower.run(test(SIZE, "lt", 5, test(LIVE, "lt", 1, leaf("a"), leaf("b")),
      test(LIVE, "lt", 1, leaf("a"), leaf("b"))))
    assert.equal(LIVE, cell.input)
  end)

  it("balances a chain of thresholds", function()
    local tree = leaf("end")
    for i = 100, 1, -1 do tree = test(SIZE, "lt", i * 10, leaf("s" .. i), tree) end
    local cell = lower.run(tree)
    assert.equal(7, depth(cell))
    for i = 1, 100 do
      assert.equal("s" .. i, decide(cell, i * 10 - 1))
      assert.equal(i < 100 and "s" .. i + 1 or "end", decide(cell, i * 10))
    end
  end)

  it("balances equalities, the first one winning", function()
    local tree = leaf("end")
    for _, k in ipairs { 7, 300, 5, 6, 7 } do tree = test(SIZE, "eq", k, leaf("k" .. k), tree) end
    local cell = lower.run(tree)
    for size, key in pairs { [4] = "end", [5] = "k5", [6] = "k6", [7] = "k7", [8] = "end",
      [299] = "end",
                             [300] = "k300", [301] = "end" } do
      assert.equal(key, decide(cell, size))
    end
  end)

  it("keeps the line of each threshold", function()
    local cell = lower.run(test(SIZE, "lt", 5, leaf("a"), leaf("b"), 42))
    assert.equal(42, cell.line)
  end)
end)

describe("emit", function()
  local function plan_of(tree)
    local emitted = emit.run(lower.run(tree), function(l) return l.ids end)
    return assert(core.plan(emitted.image)), emitted
  end

  it("makes a leaf alone a plan without nodes", function()
    local plan, emitted = plan_of(leaf("a"))
    assert.equal(0, plan.nodes)
    assert.equal(1, plan.leaves)
    assert.equal("a", emitted.leaves[1].key)
  end)

  it("orders nodes so that deciding ends, and shares them", function()
    local shared = test(LIVE, "lt", 9, leaf("a"), leaf("bb"))
    local tree = test(SIZE, "lt", 5, shared, test(SIZE, "lt", 10, leaf("ccc"), shared))
    local plan, emitted = plan_of(tree)
    assert.equal(3, plan.nodes)
    assert.equal(3, plan.leaves)
    assert.is_true(emitted.reads[5])
    for i = 0, plan.nodes - 1 do
      for _, to in ipairs { plan.node[i].yes, plan.node[i].no } do assert.is_true(to < 0
        or to > i) end
    end
    local function answer(size, live)
      return emitted.leaves[core.decide(plan, { size = size, live = live }) + 1].key
    end
    assert.equal("a bb ccc a bb", table.concat({ answer(4, 8), answer(4, 9), answer(9, 8),
      answer(10, 8),
                                               answer(10, 9) }, " "))
  end)

  it("writes computed conditions in postfix", function()
    local sum = { op = "add", a = SIZE, b = { op = "mul", a = LIVE, b = 2 } }
    local tree = { condition = { complex = true, cmp = "le", left = sum, right = 100 },
                   yes = leaf("a"), no = leaf("bb") }
    local plan = plan_of(tree)
    assert.equal(6, plan.codes)
    assert.equal(0, core.decide(plan, { size = 80, live = 10 }))
    assert.equal(1, core.decide(plan, { size = 81, live = 10 }))
  end)
end)
