-- slip_spec.lua - typical slips of the authors of policies are told what to write.

local support = require("support")

describe("a typical slip", function()
  it("is told what to write", function()
    for text, hint in pairs {
      ["pick = function() return req.size > 5 and a or b end"] = "^write pick = function%(req%)",
      ["pick = function(req) return if req.zero then a else b end end"]
        = "^write if c then return a else return b end$",
      ["pick = function(req) if req.zero then a else b end end"]
        = "^write if c then return a else return b end$",
      ["pick = function(req) if req.zero then return a else b end end"]
        = "^write if c then return a else return b end$",
      ["pick = function(req)\nif req.size > 5 then return a\nreturn b end"]
        = "^return ends a block: write end before this line",
      ["pick = function(req)\nif req.tag:is \"x then return a end return b end"]
        = "^end the string with \" on its line$",
      ["pick = function(req) if req.tag.under(\"x\") then return a end return b end"]
        = "^write req.tag:under\"tensor\", with a colon$",
      ["pick = function(req) for _, t in ipairs('x y') do end return b end"]
        = "^write ipairs { \"a\", \"b\" }",
      ["pick = function(req) return a end, always = { x = function(req) return got.limit end }"]
        = "^write function%(req, got%)",
    } do
      local d = support.refused("local a, b = loam.host { name = 'a' }, loam.host { name = 'b' }\n"
        .. "return loam.policy { " .. text .. " }\n")
      assert.matches(hint, d and d.suggestion or "none", text)
    end
  end)

  it("is said to be missing in Lua 5.1 where a newer Lua has it", function()
    for _, newer in ipairs { "= 1 // 2", "= 1 & 2", "= 1 | 2", "= 1 ~ 2", "= ~1", "= 1 << 2",
      "= 1 >> 2", "<const> = 1" } do
      local d = support.refusal("local n " .. newer .. "\nreturn b")
      assert.equal("syntax", d and d.class, newer)
      assert.matches("^Lua 5%.1 has no ", d.reason)
    end
    assert.matches("^Lua has no operator '!='", support.refusal("if req.size != 1 then end").reason)
  end)

  it("of a Lua programmer is told what a policy has instead", function()
    for line, hint in pairs {
      ["local loam = require 'loam'"] = "^remove it: a policy has loam without require$",
      ["local loam = require(\"loam\")"] = "^remove it: a policy has loam without require$",
      ["local bit = require 'bit'"] = "^write x %% 4096 for the low bits",
      ["local lists = require 'lists'"] = "^a policy is one file",
      ["local words = ('a b'):gmatch('%a')"] = "or a table of strings: { \"a\", \"b\" }$",
      ["local t = table.pack(1, 2)"] = "^write { %.%.%. } above pick, and select%(i, %.%.%.%) in",
      ["local n = table.getn({})"] = "^write #t$",
      ["table.foreach({}, error)"] = "^write for key, value in pairs%(t%)",
      ["local n = math.maxinteger"] = "^write math.huge$",
      ["local n = math.log10(100)"] = "^write math.log%(x%) / math.log%(10%)$",
      ["warn('x')"] = "^error%(text%) stops the load",
    } do
      local d = support.refused("local a = loam.host { name = 'a' }\n" .. line
        .. "\nreturn loam.policy { pick = function() return a end }\n")
      assert.equal(2, d and d.line, line)
      assert.matches(hint, d.suggestion or "none", line)
    end
    local d = support.refusal("return f(1)", nil,
      "local function f(...) for _, t in ipairs {...} do if t == 1 then return a end end end ")
    assert.equal("table", d and d.class)
    assert.matches("^write select%(i, %.%.%.%) for i = 1, select%(\"#\", %.%.%.%)$", d.suggestion)
    d = support.refusal("return math.log(req.size) > 9 and a or b")
    assert.matches("^write x > 2 ^ 12 for math.log%(x, 2%) > 12$", d and d.suggestion)
  end)

  it("is warned of where a string is compared with nil", function()
    local site = require("loam.symbolic.site")
    local before = #site.doubts()
    assert.equal("b", support.answers("return req.module == nil and a or b", { 1 }))
    local doubt = site.doubts()[#site.doubts()]
    assert.equal(before + 1, #site.doubts())
    assert.equal("write req.module == \"\"", doubt.suggestion)
  end)
end)
