-- source_spec.lua - correct policies that look like a common mistake are not refused for it, and a
-- mistake is not taken for another one.

local support = require("support")

describe("a 'not' at the end of a statement", function()
  it("does not belong to a comparison in the next statement", function()
    for _, statement in ipairs { "if req.size == 4096 then return a end",
                                 "while req.size == 4096 do return a end",
                                 "repeat until req.size == 4096 or true",
                                 "for i = 1, 2 do local b2 = i == 2 end" } do
      assert.is_nil(support.refusal("local x = not req.zero\n" .. statement .. " return b"))
    end
  end)
end)

describe("the suggestion for a syntax error", function()
  it("is not about names that are like a word of Lua, and not about comments", function()
    local d = support.refusal("return a", nil, "local functions = 4KiB -- don\226\128\153t\n")
    assert.equal("write sizes as 4 * loam.MiB", d.suggestion)
    d = support.refusal("return a", nil, "local functions = { 1 2 }\n")
    assert.equal("write a comma between the entries of a table", d.suggestion)
  end)

  it("is about a misspelt word wherever it stands", function()
    for text, word in pairs {
      ["if req.size > 4096 then retrun a end return b"] = "return",
      ["if req.zero then f() esleif x then f() end return b"] = "elseif",
      ["local f = fucntion(x) return x end return a"] = "function",
      ["local t = { f = fucntion(x) f() end } return a"] = "function",
    } do
      assert.equal(("did you mean '%s'?"):format(word), support.refusal(text).suggestion)
    end
  end)
end)

describe("an option that is false", function()
  it("is what an invariant reads, also beside a strategy without the option", function()
    assert.is_nil(support.refusal("if req.tag:under 'n' then return p end return q", "m",
      "local p, q = loam.host {}, loam.host { zero = false } ",
      "always = { z = function(req, got) return req.tag:under 'n' or got.zero == false end }"))
  end)
end)
