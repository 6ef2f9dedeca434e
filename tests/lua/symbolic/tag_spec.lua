-- tag_spec.lua - questions about dotted names, and the text of a policy.

require("support")
local source = require("loam.language.source")
local tag = require("loam.symbolic.tag")

describe("under", function()
  it("is the name or below it", function()
    assert.is_true(tag.under("a.b", "a"))
    assert.is_true(tag.under("a.b", "a.b"))
    assert.is_true(tag.under("a", ""))
    assert.is_false(tag.under("ab", "a"))
    assert.is_false(tag.under("a", "a.b"))
    assert.is_false(tag.under("", "a"))
  end)
end)

describe("glob", function()
  it("takes * for any run and ? for one character", function()
    for pattern, name in pairs { ["*"] = "", ["a*"] = "a.b.c", ["*c"] = "a.b.c", ["a*c"] = "abc.c",
                                 ["?b"] = "ab", ["**"] = "x", ["a*b*c"] = "a.b.b.c", [""] = "" } do
      assert.is_true(tag.glob(name, pattern), name .. " " .. pattern)
    end
    for pattern, name in pairs { ["?"] = "", ["a*"] = "b", ["a?"] = "a", ["*b"] = "abc",
      ["a.b"] = "axb",
                                 [""] = "a" } do
      assert.is_false(tag.glob(name, pattern), name .. " " .. pattern)
    end
  end)

  it("knows no other pattern", function()
    assert.is_false(tag.glob("abc", "%a+"))
    assert.is_true(tag.glob("a[b]", "a[*]"))
  end)
end)

describe("part", function()
  it("counts from 1", function()
    assert.equal("a", tag.part("a.b.c", 1))
    assert.equal("c", tag.part("a.b.c", 3))
    assert.is_nil(tag.part("a.b.c", 4))
    assert.is_nil(tag.part("", 1))
    assert.equal("", tag.part("a..c", 2))
    assert.equal("abc", tag.part("abc", 1))
  end)
end)

describe("the lines of tests", function()
  it("are found past comments and strings", function()
    assert.same({ 2, 3, 6, start = 1 }, source.test_lines([==[
return loam.policy { tests = {
  { tag = "}{" }, -- {
  { tag = '}', expect = f { 1 } }, --[[ {
  { } ]]
  -- { }
  { tag = [[ { ]] } } }
]==]))
  end)

  it("are none where tests are made otherwise", function()
    assert.same({ start = 1 }, source.test_lines("return loam.policy { tests = make() }\n"))
  end)
end)
