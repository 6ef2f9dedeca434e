-- ordered_spec.lua - pairs and next of a policy go over the keys of a table in their order.

local support = require("support")
local ordered = require("loam.language.ordered")

local function walked(t, is_constant)
  local by_pairs, by_next = {}, {}
  for key, value in ordered.pairs(t, is_constant) do
    assert.equal(rawget(t, key), value)
    by_pairs[#by_pairs + 1] = key
  end
  local key, value = ordered.next(t, nil, is_constant)
  while key ~= nil do
    assert.equal(rawget(t, key), value)
    by_next[#by_next + 1] = key
    key, value = ordered.next(t, key, is_constant)
  end
  assert.same(by_pairs, by_next)
  return by_pairs
end

describe("pairs and next", function()
  it("go over numbers, then strings, then false and true, then strategies", function()
    local first, second = {}, {}
    ordered.number(first)
    ordered.number(second)
    local t = { [second] = 1, b = 1, [10] = 1, [-1] = 1, [true] = 1, [0.5] = 1, a = 1, [""] = 1,
                [first] = 1, ["a.b"] = 1, [false] = 1, [1] = 1 }
    local wanted = { -1, 0.5, 1, 10, "", "a", "a.b", "b", false, true, first, second }
    for _, is_constant in ipairs { false, true, true } do
      local list = walked(t, is_constant)
      assert.same(wanted, list)
      assert.equal(first, list[11]) -- `same` takes two empty tables for equal
      assert.equal(second, list[12])
    end
  end)

  it("go over lists, also over those with gaps and those that were filled from the end", function()
    assert.same({ 1, 2, 3 }, walked({ "x", "y", "z" }, false))
    assert.same({ 1, 3, "x" }, walked({ 1, nil, 3, x = 2 }, false))
    local t = {}
    for i = 9, 1, -1 do t[i] = i end
    assert.same({ 1, 2, 3, 4, 5, 6, 7, 8, 9 }, walked(t, true))
    assert.same({}, walked({}, false))
  end)

  it("leave out what a loop has removed, and see a table that has changed", function()
    local t, seen = { a = 1, b = 2, c = 3 }, {}
    for key in ordered.pairs(t, false) do
      seen[#seen + 1] = key
      t.b = nil
    end
    assert.same({ "a", "c" }, seen)
    t.aa = 4
    assert.same({ "a", "aa", "c" }, walked(t, false))
    local count = 0
    while ordered.next(t, nil, false) do
      t[ordered.next(t, nil, false)] = nil
      count = count + 1
    end
    assert.equal(3, count)
  end)

  it("let a loop remove the keys that it gets", function()
    for round = 1, 200 do
      local t, names, seen = {}, {}, {}
      for i = 1, 20 do
        names[i] = ("%d.%02d"):format(round, i)
        t[names[i]] = round
      end
      local key = ordered.next(t, nil, false)
      while key do
        seen[#seen + 1], t[key] = key, nil
        key = ordered.next(t, key, false)
      end
      assert.same(names, seen)
    end
  end)

  it("see the keys that a table got between a loop of the file and pick", function()
    local t = { b = 1, c = 2 }
    assert.same({ "b", "c" }, walked(t, false))
    t.a = 3
    assert.same({ "a", "b", "c" }, walked(t, true))
    t = { b = 1 }
    assert.equal("b", (ordered.next(t, nil, false)))
    assert.is_nil(ordered.next(t, "b", false))
    t.a = 2
    assert.same({ "a", "b" }, walked(t, true))
  end)

  it("give a policy one meaning in each process", function()
    local loops = {
      "for prefix, s in pairs(rules) do if req.tag:under(prefix) then return s end end return c",
      "local prefix, s = next(rules) while prefix do if req.tag:under(prefix) then return s end "
        .. "prefix, s = next(rules, prefix) end return c",
    }
    for _, loop in ipairs(loops) do
      for i = 1, 8 do
        local above = ("local rules = { ['x.%d'] = b, x = a, ['x.y%d'] = b } "):format(i, i)
        assert.equal("a", support.answers(loop, { 1 }, "x.y" .. i, above))
        assert.equal("a", support.answers(loop, { 1 }, "x." .. i, above))
      end
    end
  end)
end)
