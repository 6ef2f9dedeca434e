-- value_spec.lua - a wrong value at any place of a policy is refused with a message that names it.

local support = require("support")

local NOT_NUMBERS = { ["0/0"] = "nan", ["1/0"] = "inf", ["-1/0"] = "-inf", ["1e300"] = "1e+300",
                      ["-1"] = "-1", ["1.5"] = "1.5", ['"64"'] = '"64"', ["{}"] = "a table",
                      ["true"] = "true", ["math.floor"] = "a function" }

local function refused(text, class, says)
  local d = support.refused(text)
  assert.is_truthy(d, "was not refused: " .. text)
  assert.equal(class, d.class, text .. ": " .. d.reason)
  if not string.find(d.reason, says, 1, true) then error(says .. " is not in: " .. d.reason) end
  assert.is_true(#d.reason < 300, d.reason)
end

local function option(text, says, class)
  refused("local s = loam.host { " .. text .. " }\n"
    .. "return loam.policy { pick = function() return s end }\n", class or "option", says)
end

local function test(text, says)
  refused("local s = loam.host {}\nreturn loam.policy { pick = function() return s end,\n"
    .. "tests = { { expect = s, " .. text .. " } } }\n", "test", says)
end

describe("an option", function()
  it("that is a number is one in its range", function()
    for _, key in ipairs { "align", "limit", "guard", "numa" } do
      for value, shown in pairs(NOT_NUMBERS) do
        if not (key == "guard" and value == "true") then
          option(key .. " = " .. value, key .. " = " .. shown .. ":")
        end
      end
    end
    option("align = 3", "align = 3:")
    option("align = 2^40", "align = 1099511627776:")
    option("limit = 2^48", "limit = ")
    option("guard = 2^32", "guard = 4294967296:")
    option("numa = { prefer = 0/0 }", "numa.prefer = nan:")
    option("numa = { weights = { [0] = 1/0 } }", "= inf:")
  end)

  it("that is true or false is nothing else", function()
    for _, key in ipairs { "zero", "prefault", "lock" } do
      option(key .. " = 1", key .. " = 1:")
      option(key .. " = 'yes'", key .. ' = "yes":')
    end
  end)

  it("shows the beginning of a long string, and its length", function()
    option("name = string.rep('n', 10000)", 'nnn..." (10000 bytes): must be')
    option("huge = string.rep('x', 10000)", 'xxx..." (10000 bytes): must be')
  end)

  it("that names has nothing that a terminal obeys", function()
    option([[name = "a\nb"]], "without control characters")
    refused([[local s = loam.host {}
return loam.policy { name = "\27[31m", pick = function() return s end }
]], "option", "without control characters")
    refused([[local s = loam.host {}
return loam.policy { name = string.rep("n", 64), pick = function() return s end }
]], "option", "(64 bytes)")
  end)
end)

describe("a test", function()
  it("has numbers in their range", function()
    for _, key in ipairs { "size", "align", "node", "live", "line", "pressure" } do
      for value, shown in pairs(NOT_NUMBERS) do
        test(key .. " = " .. value, key .. " = " .. shown .. ":")
      end
    end
    test("size = 2^47 + 1", "from 0 to 2^47")
    test("align = 24", "align = 24: must be a power of two")
    test("node = 64", "node = 64: must be a whole number from 0 to 63")
    test("pressure = 101", "pressure = 101: must be a whole number from 0 to 100")
    test("device = -2", "device = -2: must be a whole number from -1 to 63")
  end)

  it("has free memory in whole bytes, of nodes that there can be", function()
    local most = "a whole number from 0 to 2^52"
    for _, key in ipairs { "node_free", "device_free" } do
      for value, shown in pairs { ["0/0"] = "nan", ["1/0"] = "inf", ["-1"] = "-1", ["9.5"] = "9.5",
          ["2^53"] = "9.007199254741e+15", ["'1'"] = '"1"' } do
        local says = key .. "[1] = " .. shown .. ": must be " .. most
        test(key .. " = { [1] = " .. value .. " }", says)
      end
      test(key .. " = 5", key .. " = 5: must be a table such as {[0] = 2 * loam.GiB}")
      for _, n in ipairs { "0.5", "-1", "64", "1/0" } do
        test(key .. " = { [" .. n .. "] = 1 }", key .. ": must be a table")
      end
    end
  end)

  it("has tags that a site can have", function()
    test("tag = 5", "tag = 5: must be a string")
    test("tag = string.rep('t', 256)", "(256 bytes): must be at most 255 bytes")
    test([[tag = "a\0b"]], "without a zero byte")
    assert.is_nil(support.refused("local s = loam.host {}\n"
      .. "return loam.policy { pick = function() return s end,\n"
      .. "tests = { { tag = string.rep('t', 255), size = 2^47, expect = s },\n"
      .. [[{ tag = "\1 \255 é \" \n", size = 0, align = 2^47, expect = s } } }]] .. "\n"))
  end)

  it("expects a strategy and asks with booleans", function()
    test("zero = 1", "zero = 1: must be true or false")
    refused("return loam.policy { pick = function() end,\n"
      .. "tests = { { size = 1, expect = 's' } } }\n", "test", 'expect = "s": must be a strategy')
  end)
end)

describe("string.rep", function()
  local function answer(condition)
    return support.answers("return " .. condition .. " and a or b", { 1 })
  end

  it("puts a separator between the copies, as Lua's does", function()
    assert.equal("a", answer("('ab'):rep(3, '.') == 'ab.ab.ab'"))
    assert.equal("a", answer("('ab'):rep(2) == 'abab' and ('ab'):rep(1, '.') == 'ab'"))
  end)

  it("makes no long string out of a long separator", function()
    assert.matches("at most 65536 bytes",
      support.refusal("return ('x'):rep(100, ('y'):rep(1000)) == '' and a or b").reason)
    assert.matches("at most 65536 bytes",
      support.refusal("return ('x'):rep('100000') == '' and a or b").reason)
  end)
end)

describe("a string that is longer than any of a site", function()
  local above = "local by = { [('x'):rep(5000)] = a, y = a } "

  it("may be a key of a table", function()
    assert(support.open(support.file("return by[req.file] or b", above)))
    local policy = require("loam.compiler.policy")
    assert.same({}, policy.compile_all())
    local tree = policy.tree()
    assert.is_true(#tree < 1000) -- so it does not contain the long key
    local _, find = support.core.class_tree(tree)
    assert.are_not.equal(find { tag = "", file = "y" }, find { tag = "", file = "x" })
  end)

  it("is no pattern", function()
    assert.matches(":glob takes a pattern of at most 4096 bytes, not 5000",
      support.refusal("return req.file:glob(('*'):rep(5000)) and a or b").reason)
  end)
end)

describe("a part that no tag has", function()
  it("is nil", function()
    for _, index in ipairs { "256", "2^52", "1e300", "1/0" } do
      assert.is_nil(support.refused("local s = loam.host {}\n"
        .. "return loam.policy { pick = function(req)\n"
        .. "if req.tag:part(" .. index .. ") == 'x' then return nil end\nreturn s end }\n"))
    end
  end)
end)

describe("the words for a file that is no text", function()
  it("do not repeat its bytes", function()
    local diag = require("loam.report.diag")
    local text = "\127ELF\2\1\1\0\0\n"
    local shown = diag.render(support.refused(text), "ls", diag.lines(text))
    assert.equal("ls:1: file: the file is not text: it has a zero byte", shown)
  end)

  it("say what to do where it is text in another encoding", function()
    for _, text in ipairs { "\255\254l\0o\0\n\0", "\254\255\0l\0o\0\n", "l\0o\0\n\0" } do
      local d = support.refused(text)
      assert.equal("the file is not UTF-8: it seems to be UTF-16", d.reason)
      assert.equal("save it as UTF-8", d.suggestion)
    end
  end)
end)

describe("a file", function()
  local MARK = "\239\187\191"
  local good = "local s = loam.host {}\nreturn loam.policy { pick = function() return s end }\n"

  it("may end its lines as other systems do, and begin with a mark or #!", function()
    local crlf = string.gsub(good, "\n", "\r\n")
    for _, text in ipairs { crlf, MARK .. good, MARK .. crlf, "#!/usr/bin/loam\n" .. good } do
      assert.is_nil(support.refused(text))
    end
  end)

  it("is shown without them where it is wrong", function()
    local diag = require("loam.report.diag")
    for _, text in ipairs { MARK .. "return nosuch\n", "return nosuch\r\n" } do
      local shown = diag.render(support.refused(text), "p.lua", diag.lines(text))
      assert.matches("\n    1 | return nosuch$", (string.gsub(shown, "\n  hint.*", "")))
    end
  end)
end)

describe("a table", function()
  it("may be the begin of a long chain of tables, and pick may not write to the last", function()
    local chain = "local s, last = loam.host {}, {}\nlocal first = last\n"
      .. "for _ = 1, 10000 do first = { first } end\n"
      .. "return loam.policy { pick = function() %s return first and s end }\n"
    assert.is_nil(support.refused(chain:format("")))
    refused(chain:format("last.x = 1"), "write", "pick writes to a table")
  end)
end)
