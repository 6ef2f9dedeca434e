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
  it("is a table where Lua has room for no more variables", function()
    local names, above = {}, {}
    for i = 1, 210 do
      names[i], above[i] = "v" .. i, "local v" .. i .. " = 1\n"
    end
    local d = support.refusal("return b", nil, table.concat(above))
    assert.matches("^main function has more than 200 local variables", d.reason)
    assert.matches("^put values into one table", d.suggestion)
    d = support.refusal("return " .. table.concat(names, " + ", 1, 70), nil,
      table.concat(above, "", 1, 70))
    assert.matches("more than 60 upvalues", d.reason)
    assert.matches("^put values into one table", d.suggestion)
    d = support.refusal(("if req.zero then "):rep(210) .. ("end "):rep(210))
    assert.matches("too many syntax levels", d.reason)
    assert.matches("^write the cases one after the other", d.suggestion)
    assert.equal("close [[ with ]]", support.refusal("local s = [[x return b").suggestion)
    assert.equal("remove this ';'", support.refusal("local s = 1;; return b").suggestion)
  end)

  it("names the conflict markers of a merge", function()
    for _, marker in ipairs { "<<<<<<< HEAD", "=======", ">>>>>>> main" } do
      local d = support.refusal("return b", nil, "local m = '='\n" .. marker .. "\n")
      assert.equal(2, d.line)
      assert.matches("^Lua has no conflict marker", d.reason)
      assert.matches("^keep one of the two versions", d.suggestion)
    end
  end)

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

describe("a mistake in loam.policy", function()
  -- Returns the line and the reason of the refusal of a policy whose third line is `entry`.
  local function refused(entry)
    local d = support.refused("local a = loam.host {}\nreturn loam.policy {\n  " .. entry
      .. ",\n  pick = function(req) local name = 5 return name and a end,\n}\n")
    return d.line, d.reason
  end

  it("is told with the line of the entry", function()
    for entry, reason in pairs {
      ["nane = 'x'"] = "loam.policy has no 'nane'", ["name = 5"] = "name is a number",
      ["apply = 'now'"] = 'apply = "now"', ["tests = 5"] = "tests is a number",
      ["always = { function() return true end }"] = "always has an entry without a name",
      ["always = { x = true }"] = 'always "x" is a boolean: must be a function',
    } do
      local line, said = refused(entry)
      assert.equal(3, line, entry)
      assert.equal(reason, said:sub(1, #reason))
    end
  end)

  it("is told with the last line where no entry is meant", function()
    local d = support.refused("return loam.policy {\n  name = 'x',\n}\n")
    assert.equal("loam.policy needs pick", d.reason)
    assert.equal(3, d.line)
    d = support.refused("local a = loam.host {}\nlocal p = loam.policy { pick = function() "
      .. "return a end }\n-- the end\n")
    assert.equal("the file does not return a policy", d.reason)
  end)
end)

describe("a function that a policy cannot use", function()
  it("is shown in the words of Lua 5.1 where a newer Lua has it", function()
    for name, hint in pairs { ["table.unpack"] = "write unpack(t)", ["math.pow"] = "x ^ y",
                              ["math.type"] = "math.floor", ["bit32.band"] = "x % 4096",
                              ["utf8.char"] = "Lua 5.1", ["_G.x"] = "name alone" } do
      local d = support.refusal("local f = " .. name .. " return a")
      assert.equal("name", d.class)
      assert.matches(hint, d.suggestion, 1, true)
    end
  end)

  it("has an operator in its place if it takes no number of the request", function()
    for call, hint in pairs { ["math.fmod(req.size, 4096)"] = "write a % b",
                              ["math.sqrt(req.size)"] = "write x ^ 0.5",
                              ["math.log(req.size)"] = "write x > 2 ^ 12 for math.log(x, 2) > 12",
                              ["math.exp(req.size)"] = "compare it with numbers instead" } do
      local d = support.refusal("if " .. call .. " > 4 then return a end return b")
      assert.equal(hint, d.suggestion)
    end
    assert.is_nil(support.refusal("if req.size ^ 0.5 > 64 then return a end return b"))
  end)
end)

describe("select", function()
  it("passes strings and numbers of the request on", function()
    assert.equal("a b", support.tags("local function second(...) return (select(2, ...)) end "
      .. "if select('#', req.tag, nil) == 2 and second(req.size, req.tag) == 'x' then return a end "
      .. "return b", { "x", "y" }))
  end)

  it("takes no number of the request to count with", function()
    local d = support.refusal("return (select(req.size, a, b))")
    assert.equal("text", d.class)
    assert.matches("^select cannot take req.size", d.reason)
    d = support.refusal("return (select())")
    assert.equal("type", d.class)
  end)
end)

describe("a comparison of req.zero with a number", function()
  it("is told that req.zero is none", function()
    assert.matches("write if req.zero then$",
      support.refusal("if req.zero > 0 then return a end return b").suggestion)
  end)
end)

describe("an invariant that asks the request for a field of the strategy", function()
  it("is told that `got` has it", function()
    for parameters, field in pairs { ["got, req"] = "got.name", ["req"] = "req.name" } do
      local d = support.refused("local a = loam.host {}\nreturn loam.policy { pick = function() "
        .. "return a end,\nalways = { x = function(" .. parameters .. ") return " .. field
        .. " == 'a' end } }\n")
      assert.equal("req has no field 'name'", d.reason)
      assert.equal("got has it: write function(req, got) and got.name", d.suggestion)
    end
  end)
end)

describe("a part that a tag does not have", function()
  it("is told as nil", function()
    local d = support.refusal("if req.tag:part(2) == 'x' then return a end", { tag = "a" })
    assert.equal("req.tag:part(2) ~= nil", d.led[1].condition)
    assert.is_false(d.led[1].holds)
    d = support.refusal("if req.tag:part(2):under 'x' then return a end return b", { tag = "a" })
    assert.matches("^req.tag:part%(2%) is nil for a tag without that part", d.suggestion)
  end)
end)

describe("an order of strings of the request", function()
  it("is refused in the words of the operator that was written, or of its mirror", function()
    for operator, words in pairs { ["<"] = "< or >", [">"] = "< or >", ["<="] = "<= or >=",
                                   [">="] = "<= or >=" } do
      assert.matches("^" .. words .. " needs the text of req.tag", support.refusal(
        "if req.tag " .. operator .. " 'm' then return a end return b").reason)
    end
  end)
end)
