-- spread_spec.lua - the spread text of a policy is the same program, with a line for each word.

require("support")
local spread = require("loam.language.spread")

local function bytecode(text) return string.dump(assert(load(text, "=policy")), true) end

describe("the spread text", function()
  it("has the bytecode of the text", function()
    for _, text in ipairs {
      "local a, b = 1e-5, 0x1p4 return a..b, a ..1.5 .. 'x', a.b.c, -a^2, a[b[1]]\n",
      "local f = function(...) return ... end return f{1}, f'x', (f)(1)(2), f[[\ny]], [==[]]]==]\n",
      "-- a comment\n--[[ one\nof two lines ]] return \"a \\\" -- b\", 'c', 10LL, 5 --[=[ ] ]=]\n",
      "\239\187\191local t = { [1] = 2; x = 3 }\ngoto out\nt.x = 4 ::out:: return t\n",
      "#!/usr/bin/env loam\nreturn a:b 'c' :d{} and not b or c ~= d\n",
      "#!/usr/bin/env loam\rreturn 1\n",
      "local a = 1 -- Lua ends a comment here\ra = a.b\nreturn a\n",
      "return 'a\\z\n  b c', 'd\\\r\n\\\\', a and b\r\n",
      "local \195\169, \195\169a, a\195\1691 = 1, 2, 3 return \195\169a()\n",
    } do
      assert.equal(bytecode(text), bytecode((spread.run(text))))
    end
  end)

  it("has a line for each word behind a string that goes on in the next line", function()
    for _, text in ipairs { "return 'a\\z\n' and b and c\n", "return 'a\\\r\n' and b and c\r\n" } do
      assert.matches("\nand \nb \nand \nc", (spread.run(text)))
    end
  end)

  it("has two calls of one line on two lines, and knows their line", function()
    local text, lines = spread.run("f = 1\nreturn g(1)(2), h { 3 }\n")
    local count = select(2, text:gsub("\n", ""))
    assert.equal(count, #lines)
    assert.equal(1, lines[2])
    assert.equal(2, lines[#lines])
    assert.matches("\ng%([^\n]*\n1[^\n]*\n%)%([^\n]*\n2", text)
  end)
end)
