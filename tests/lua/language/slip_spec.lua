-- slip_spec.lua - typical slips of the authors of policies are told what to write.

local support = require("support")

describe("a typical slip", function()
  it("is told what to write", function()
    for text, hint in pairs {
      ["pick = function() return req.size > 5 and a or b end"] = "^write pick = function%(req%)",
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

  it("is warned of where a string is compared with nil", function()
    local site = require("loam.symbolic.site")
    local before = #site.doubts()
    assert.equal("b", support.answers("return req.module == nil and a or b", { 1 }))
    local doubt = site.doubts()[#site.doubts()]
    assert.equal(before + 1, #site.doubts())
    assert.equal("write req.module == \"\"", doubt.suggestion)
  end)
end)
