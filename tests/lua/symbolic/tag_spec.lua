-- tag_spec.lua - questions about dotted names, tags that questions name, and the text of a policy.

require("support")
local tag_literals = require("loam.compiler.tag_literals")
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

describe("the tags that questions name", function()
  local function named(tag_now, ...)
    local set, asked = tag_literals.new(), {}
    for i, literal in ipairs { ... } do asked[2 * i - 1] = { literal = literal } end
    tag_literals.add(set, tag_now, asked)
    return table.concat(set.list, " ")
  end

  it("answer each question with yes", function()
    assert.equal("a.b a.b.x", named("", { how = "under", about = "a.b" }))
    assert.equal("a.b", named("", { how = "is", about = "a.b" }))
    assert.equal("x.bx", named("", { how = "glob", about = "*.b?" }))
    assert.equal("k l", named("", { how = "key", about = { l = 1, k = 2, 5 } }))
    assert.equal("a.x.x", named("a", { how = "part", about = 3 }))
    assert.equal("a.k", named("a.b", { how = "is", about = "k", part = 2 }))
  end)

  it("are at most 256", function()
    local keys = {}
    for i = 1, 1000 do keys["k" .. i] = true end
    local set = tag_literals.new()
    tag_literals.add(set, "", { { literal = { how = "key", about = keys } }, false })
    assert.equal(256, #set.list)
  end)
end)
