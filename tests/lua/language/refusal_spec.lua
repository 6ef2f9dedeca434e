-- refusal_spec.lua - policies that cannot be compiled exactly are refused, with line, class, reason
-- and a suggestion.

local support = require("support")

-- Checks the refusal of a policy with this body. The body begins on line 2.
local function refused(body, expected, where, above)
  local d = support.refusal(body, where, above)
  assert.is_truthy(d, "was not refused: " .. body)
  assert.equal(expected.class, d.class, body .. ": " .. d.reason)
  assert.equal(expected.line or 2, d.line, body .. ": " .. d.reason)
  if expected.reason then assert.matches(expected.reason, d.reason) end
  if expected.hint then assert.matches(expected.hint, tostring(d.suggestion)) end
  return d
end

describe("a loop bounded by the request", function()
  it("is refused in a for", function()
    refused("for i = 1, req.size do end return a", { class = "loop", hint = "constants" })
  end)

  it("is refused in a while, by its forks", function()
    local d = refused("local n = 0 while n < req.size do n = n + 1 end return a",
      { class = "leaves",
      reason = "line 2 forks" })
    assert.matches("loop", d.suggestion)
  end)
end)

describe("too many leaves", function()
  it("names the lines that fork most, with counts", function()
    local lines = {}
    for i = 1, 11 do lines[i] = "local x" .. i .. " = req.size % " .. i + 2 .. " == 0" end
    lines[12] = "return a"
    local d = support.refusal(table.concat(lines, "\n"))
    assert.equal("leaves", d.class)
    assert.matches("more than 1000 leaves: line 12 forks %d+ times, line 11 forks %d+ times",
      d.reason)
    assert.matches("each tag has 1000 leaves of its own", d.suggestion)
    assert.matches("max_leaves of loam_config", d.suggestion)
    assert.equal(12, d.line)
  end)
end)

describe("impurity", function()
  it("is refused where pick writes to what outlives it", function()
    refused("n = n + 1 return a", { class = "write" }, nil, "local n = 0 ")
    refused("seen.x = true return a", { class = "write" }, nil, "local seen = {} ")
    refused("count = 1 return a", { class = "write" })
    refused("table.insert(seen, 1) return a", { class = "write" }, nil, "local seen = {} ")
    refused("table.sort(seen) return a", { class = "write" }, nil, "local seen = {} ")
    refused("req.size = 1 return a", { class = "write" })
  end)

  it("is refused where pick makes tables or strategies", function()
    refused("local t = { req.size } return a", { class = "table", hint = "above pick" })
    refused("local t = {} return a", { class = "table" })
    refused("return loam.host()", { class = "write", hint = "above pick" })
  end)

  it("has no random numbers and no clock", function()
    refused("if math.random() < 0.5 then return a end return b", { class = "name",
      hint = "same answer" })
    refused("if os.time() > 0 then return a end return b", { class = "name" })
  end)
end)

describe("text made of numbers", function()
  it("is refused in every form", function()
    refused("local t = 'n' .. req.size return a", { class = "text", hint = "compare" })
    refused("local t = tostring(req.size) return a", { class = "text" })
    refused("local t = string.format('%d', req.size) return a", { class = "text" })
    refused("local t = ('x'):rep(req.size) return a", { class = "text" })
    refused("local t = req.tag .. req.size return a", { class = "text" }, "x")
    refused("error(req.size)", { class = "text" })
    refused("local t = string.format('%s', req) return a", { class = "type" })
  end)
end)

describe("a wrong operand", function()
  it("is named, with what to write instead", function()
    refused("local n = req.size + req.tag return a", { class = "type",
      reason = "^arithmetic on req.size with req.tag, which is a string$" })
    refused("if req.size < req.tag:part(1) then return a end return b", { class = "type",
      reason = "^comparing req.size with req.tag:part%(1%), which is a string$" }, "x.y")
    refused("if req.size > '4MiB' then return a end return b", { class = "type",
      reason = '^comparing req.size with the string "4MiB"$', hint = "^write 4 %* loam.MiB$" })
    refused("if req.size > '64 k' then return a end return b", { class = "type",
      hint = "^write 64 %* loam.KiB$" })
    refused("if req.size > 'big' then return a end return b", { class = "type",
      hint = "write a number" })
    refused("if req.size > limits.x then return a end return b", { class = "type",
      hint = "the value was set" }, nil, "local limits = {} ")
  end)

  it("may not be the text of the request", function()
    for use, what in pairs {
      ["req.tag + 1"] = "+", ["-req.tag"] = "-", ["req.tag < 'm'"] = "< or >", ["#req.tag"] = "#",
      ["req.tag .. '!'"] = "..", ["tostring(req.tag)"] = "tostring", ["req.tag:sub(1, 2)"] = ":sub",
      ["string.upper(req.tag)"] = "string.upper", ["tonumber(req.tag)"] = "tonumber",
      ["req.func == req.tag"] = "a comparison with another string",
      ["('a'):under(req.tag)"] = ":under", ["req.func:is(req.tag)"] = ":is",
    } do
      refused("local t = " .. use .. " return a", { class = "text",
        reason = "^" .. what:gsub("%p", "%%%0")
          .. " needs the text of req.tag: a policy is compiled for all texts beforehand$",
        hint = "^ask req.tag:under, :is, :glob or :part, compare it with ==, or look it up in a" },
        "x")
    end
  end)

  it("with a number that Lua does not read is shown in Lua", function()
    refused("if req.size > 4MiB then return a end return b", { class = "syntax",
      hint = "write sizes as 4 %* loam.MiB" })
    refused("if req.size > 4_096 then return a end return b", { class = "syntax",
      hint = "without _" })
  end)
end)

describe("a function of loam or of Lua in place of pick", function()
  it("is named in one error, with what to write", function()
    for _, pick in ipairs { "math.floor", "tostring", "string.rep", "loam.host", "a.or_else" } do
      local text = "local a = loam.host { name = 'a' }\nreturn loam.policy { pick = %s }\n"
      local _, errors = support.open(text:format(pick))
      assert.equal(1, #errors, pick)
      assert.equal("pick is a function of loam or of Lua: must be a function of this file",
        errors[1].reason)
      assert.same({ 2, "policy" }, { errors[1].line, errors[1].class })
      assert.equal("write pick = function(req) return strategy end", errors[1].suggestion)
    end
    assert.is_truthy(support.open("local a = loam.host { name = 'a' } "
      .. "local function mine(req) return a end return loam.policy { pick = mine }\n"))
  end)

  it("is refused in an invariant too", function()
    local d = support.refusal("return a", nil, nil, "always = { [\"it holds\"] = tostring }")
    assert.equal("always \"it holds\" is a function of loam or of Lua: must be a function of this "
      .. "file", d.reason)
  end)
end)

describe("a loop over a table without pairs", function()
  it("is refused, with what to write", function()
    refused("for k, v in limits do if req.tag:is(k) then return a end end return b", {
      class = "type", hint = "^write pairs%(t%) or ipairs%(t%) for a loop over a table$" }, nil,
      "local limits = { a = 1 } ")
  end)
end)

describe("a second parameter of pick", function()
  it("is named where it is used, because it is nil", function()
    for _, pick in ipairs { "function(tag, size) if size > 4 then return a end return a end",
                            "function(self, r) if r.size > 4 then return a end return a end" } do
      local d = support.refused("local a = loam.host {}\nreturn loam.policy { pick = " .. pick
        .. " }\n")
      assert.matches("nil", d.reason)
      assert.equal("pick is called with one argument, the request: write function(req)",
        d.suggestion)
    end
    assert.is_nil(support.refused("local a = loam.host {}\nreturn loam.policy { pick = "
      .. "function(req, depth) return (depth or 1) > 0 and a end }\n"))
  end)
end)

describe("a function that is not called", function()
  it("is named, with an example of a call", function()
    for _, condition in ipairs { "loam.pressure > 20", "20 < loam.pressure", "#loam.nodes > 1",
                                 "loam.node[0].free > 1" } do
      refused("if " .. condition .. " then return a end return b", { line = 2,
        class = condition:find("%[") and "type" or condition:find("#") and "type" or "compare",
        hint = "call the function: loam.pressure%(%)" })
    end
  end)
end)

describe("what another language would write", function()
  -- Each entry: a body of pick, what the reason names, and what the hint says.
  local HABITS = {
    { "if req.size & 4095 == 0 then return a end", "operator '&'", "x %% 4096 for x & 4095" },
    { "if req.size // 4096 > 1 then return a end", "operator '//'", "math.floor%(a / b%)" },
    { "if !req.zero then return a end", "operator '!'", "not a" },
    { "if req.size != 5 then return a end", "operator '!='", "a ~= b" },
    { "if req.size <> 5 then return a end", "operator '<>'", "a ~= b" },
    { "if req.size === 5 then return a end", "operator '==='", "a == b" },
    { "if req.size = 5 then return a end", "assignment in a condition", "a == b" },
    { "if req.zero && 'x && y' then return a end", "operator '&&'", "a and b" },
    { "if req.zero || false then return a end", "operator '||'", "a or b" },
    { "if req.zero OR false then return a end", "word 'OR'", "or" },
    { "local n = 1 | 2", "operator '|'", "x %+ y" },
    { "local n = ~4", "operator '~'", "%-1 %- x" },
    { "local n = 1 << 20", "operator '<<'", "x %* 2%^n" },
    { "local n = 1 >> 2", "operator '>>'", "x / 2%^n" },
    { "local n = 2 ** 20", "operator '%*%*'", "x %^ 2" },
    { "local n = req.zero ? 1 : 2", "operator '%?:'", "condition and a or b" },
    { "local n = 1; n += 1", "'%+='", "x = x %+ 1" },
    { "local n = 1; n *= 2", "'%+='", "x = x %+ 1" },
    { "local n = 1; n++", "operator '%+%+'", "x = x %+ 1" },
    { "local n = 1; ++n", "operator '%+%+'", "x = x %+ 1" },
    { "local n = 1; n--", "operator '%-%-'", "x = x %- 1" },
    { "for i = 1, 3 do continue end", "word 'continue'", "inside an if" },
    { "switch (req.line) { case 1: return a }", "word 'switch'", "elseif a == 2" },
    { "if req.zero then return a elif req.line then return b end", "word 'elif'", "elseif" },
    { "if (req.zero) { return a }", "braces around statements", "ends with 'end'" },
    { "while (req.zero) { }", "braces around statements", "ends with 'end'" },
    { "if req.zero: return a end", "':' before statements", "ends with 'end'" },
    { "if req.zero:\nreturn a end", "':' before statements", "ends with 'end'" },
    { "var n = 1", "'var' before a variable", "local x = 1" },
    { "local n = f(2 GiB)", "unit behind a number", "4 %* loam.MiB" },
    { "f { numa = local }", "value 'local' without quotes", 'write numa = "local"' },
    { "local n = [1, 2]", "list in '%['", "{ 1, 2 }" },
    { "local n = { x: 1 }", "':' between a key and its value", "key = value" },
    { "// all of it", "comments with '//'", "begins with %-%-" },
    { "/* all of it */", "comments with '/%*'", "begins with %-%-" },
    { "# all of it", "comments with '#'", "begins with %-%-" },
    { "local n = `a`", "string in backticks", 'write "a"' },
  }

  it("is named with its line, and shown in Lua", function()
    for _, habit in ipairs(HABITS) do
      refused("local m = '+='\n" .. habit[1] .. "\nreturn b", { class = "syntax", line = 3,
        reason = "^Lua [5.1 ]*has no .*" .. habit[2], hint = habit[3] })
    end
  end)

  it("is not named in a line that only looks like it", function()
    for body, reason in pairs {
      ["local n = 'a != b' 5"] = "^unexpected symbol near '5'", -- a string
      ["-- n--\nn n"] = "^'=' expected near 'n'",           -- a comment
      ["local n = 4 // 2; n ~= 3"] = "operator '//'",
    } do
      refused(body .. "\nreturn b", { class = "syntax", reason = reason,
        line = body:find("\n") and 3 or 2 })
    end
  end)

  it("is a condition that was not written to its end", function()
    refused("if req.size > 4096 and -- or\n\n  return a\nend return b", { class = "syntax",
      line = 2, reason = "^nothing follows 'and' %(unexpected symbol near 'return' on line 4%)$",
      hint = "the rest" })
    refused("local n = req.size *\nlocal m return b", { class = "syntax", line = 2,
      reason = "^nothing follows '%*'" })
    refused("if req.size > 4096 and then return a end return b", { class = "syntax",
      hint = "before 'then'" })
    refused("local n = req.size --[[ and ]]\n) return b", { class = "syntax", line = 3,
      reason = "^unexpected symbol near '%)'$" })
  end)

  it("is a comparison of three numbers, or of `not a` with a number", function()
    refused("if 4 < req.size < 8 then return a end return b", { class = "compare",
      hint = "a < b and b < c" })
    refused("if 8 > req.size > 4 then return a end return b", { class = "compare",
      hint = "a < b and b < c" })
    refused("if not req.size > 4 then return a end return b", { class = "compare",
      hint = "not %(a < b%) for not a < b" })
  end)

  it("may be a word for no value", function()
    refused("if req.func == null then return a end return b", { class = "name",
      reason = "does not have 'null'", hint = "write nil" })
    refused("if req.zero == True then return a end return b", { class = "name",
      hint = "write true" })
  end)

  it("may be a misspelt word of Lua", function()
    refused("retrun a", { class = "syntax", hint = "^did you mean 'return'%?$" })
    refused("local f = fucntion(x) return x end return a", { class = "syntax",
      hint = "^did you mean 'function'%?$" })
    assert.is_nil(support.refusal("return a)").suggestion)
  end)

  it("may be a character that is no character of Lua", function()
    for text, hint in pairs { ["\226\128\156a\226\128\157"] = 'write " in place of \226\128\156',
        ["\226\128\153a\226\128\153"] = "write ' in place of \226\128\153",
        ["\226\128\1475"] = "write %- in place of \226\128\147",
        ["\194\160a"] = "write a blank in place of the character U%+00A0",
        ["\226\128\139a"] = "remove the character U%+200B, which is not shown" } do
      refused("local n = " .. text .. " return a", { class = "name", hint = "^" .. hint })
    end
    refused("\194\160local n = 'x' return a", { class = "syntax", hint = "U%+00A0" })
    refused("local n = '\194\160' 5 return a", { class = "syntax", reason = "near '5'" })
  end)

  it("may be an entry of a table without a comma before it", function()
    refused("return a", { class = "syntax", line = 1, hint = "a comma between the entries" }, nil,
      "local d = loam.host { name = 'd' limit = 4096 } ")
    refused("return a", { class = "syntax", line = 1, hint = "a comma between the entries" }, nil,
      "local d = { 'd' 'e' } ")
  end)

  it("may be an end too many, or what follows the policy", function()
    local good = "local a = loam.host {}\nreturn loam.policy { pick = function() return a end }\n"
    local d = support.refused(good .. "end\n")
    assert.equal("the end of the file expected near 'end'", d.reason)
    assert.equal("remove this 'end', or one above it", d.suggestion)
    d = support.refused(good .. "local n = 1\n")
    assert.equal("return is the last statement of a file: write this above it", d.suggestion)
    assert.equal("a name expected near 'end'", support.refused("local end = 3\n").reason)
    assert.equal("a name or '...' expected near '2'",
      support.refused("local f = function(2)\n").reason)
    assert.equal("unexpected symbol near the end of the file", support.refused("x = (\n").reason)
  end)

  it("may be an `else if`, which needs an end of its own", function()
    refused("if req.zero then return a else if req.size > 4 then return b end",
      { class = "syntax", line = 3, hint = "write elseif" })
  end)
end)

describe("a question with two arguments", function()
  it("is refused, since the second one would not be asked about", function()
    for question, object in pairs { ["under('x', 'y')"] = "req.tag", ["is('x', 'y')"] = "req.tag",
                                    ["glob('x', 'y')"] = "('z')" } do
      refused("if " .. object .. ":" .. question .. " then return a end return b",
        { class = "type", reason = "^:%l+ takes one string, not 2$",
          hint = 'write req.tag:%l+ "a" or req.tag:%l+ "b"' })
    end
  end)
end)

describe("a question about two strings", function()
  it("is refused, since it asks about one of them", function()
    for _, question in ipairs { "under('x' or 'y')", "under 'x' or 'y'", "is \"x\" or \"y\"",
                                "glob([[x]] -- first\n or 'y')", "is('x') or 'y'" } do
      local d = refused("local n = 1\nif req.tag:" .. question .. " then return a end return b",
        { class = "type", line = question:find("\n") and 4 or 3, reason = "never asked about" })
      assert.matches("write req.tag:%l+ \"a\" or req.tag:%l+ \"b\"", d.suggestion)
    end
  end)

  it("is not seen where there is none", function()
    for _, text in ipairs { "-- req.tag:under 'x' or 'y'\nif req.tag:under 'x' then return a end",
                            "local t = \"req.tag:is 'x' or 'y'\"",
                            "local n = req.tag:part(1) or 'none'",
                            "local n = req.tag:is 'x' and 'yes' or 'no'",
                            "if req.tag:is 'x' or req.tag:is 'y' then return a end" } do
      assert.is_nil(support.refusal(text .. " return b"))
    end
  end)
end)

describe("'not' before a comparison", function()
  it("is refused, since it belongs to the left side alone", function()
    for _, condition in ipairs { "not req.tag == 'x'", "req.zero and not req.tag:part(2) == \"x\"",
                                 "not req.size == 4096", "not req.size ~= 4096",
                                 "not is(req.tag) == [[x]]" } do
      refused("local n = 1\nif " .. condition .. " then return a end return b", { class = "type",
        line = 3, reason = "^'not' belongs to the left side of '[=~]=' alone$",
        hint = condition:find("~=") and "^write a == b$" or "^write a ~= b$" })
    end
  end)

  it("is not seen where there is none", function()
    for _, condition in ipairs { "not (req.tag == 'x')", "not req.zero and req.tag == 'x'",
                                 "not is(req.tag == 'x')", "not req.zero == req.tag:is 'x'",
                                 "not is(1) or req.size == 4", "not is(1) or 'x' == req.tag" } do
      assert.is_nil(support.refusal("if " .. condition .. " then return a end return b", nil,
        "local function is(x) return x end "))
    end
    assert.is_nil(support.refusal("local x, y, z\nx = not y\ny = 'b'\nz = 'c'\nreturn a"))
  end)
end)

describe("comparisons that mean nothing", function()
  it("are refused with nil, strings and tables", function()
    refused("if req.size == nil then return a end return b", { class = "type",
      reason = "req.size with nil" })
    refused("if req.size < limits.x then return a end return b", { class = "type",
      reason = "nil" }, nil,
      "local limits = {} ")
    refused("if req.size == '5' then return a end return b", { class = "type", reason = "string" })
    refused("if req.size < req.tag then return a end return b", { class = "type" })
    refused("if req.size < 5ULL then return a end return b", { class = "type", reason = "64%-bit" })
    refused("local n = req.size + limits return a", { class = "type" }, nil, "local limits = {} ")
  end)

  it("are refused with a line when Lua itself complains", function()
    refused("if 1 < limits.x then return a end return b", { class = "compare" }, nil,
      "local limits = {} ")
    refused("return limits.x.y", { class = "nil" }, nil, "local limits = {} ")
    refused("local n = limits + 1 return a", { class = "arithmetic" }, nil, "local limits = {} ")
  end)
end)

describe("a part that the tag does not have", function()
  it("is named, with a question that asks for it first", function()
    refused("if req.tag:part(2):under('x') then return a end return b", { class = "nil",
      reason = "a nil value has no fields", hint = "^req.tag:part%(2%) is nil for a tag without "
        .. "that part: write local p = req.tag:part%(2%), and then if p and p:under\"a\" then$" })
    refused("local p = req.tag:part(2) if p:glob('x*') then return a end return b", { class = "nil",
      hint = "^req.tag:part%(2%) is nil" })
    refused("if req.tag:part(2) then return a end return limits.x.y", { class = "nil",
      reason = "'x' is a nil value", hint = "the value was set" }, nil, "local limits = {} ")
  end)
end)

describe("misspelt words", function()
  it("are refused with the nearest", function()
    refused("if req.szie > 1 then return a end return b", { class = "field", hint = "size" })
    refused("if req.tag:undr('x') then return a end return b", { class = "field", hint = "under" })
    refused("if reg.size > 1 then return a end return b", { class = "name", reason = "reg" })
    refused("if math.foor(1) > 1 then return a end return b", { class = "name", hint = "floor" })
    refused("return loam.hots", { class = "field", hint = "host" })
    refused("return a:orelse(b)", { class = "field", hint = "or_else" })
    refused("if loam.node(0).fre > 1 then return a end return b", { class = "field",
      hint = "free" })
  end)

  it("are found in branches that are not taken", function()
    refused("if false then print(1) end return a", { class = "name", hint = "error" })
  end)

  it("are refused with what there is instead", function()
    refused("if req.tag:find('x') then return a end return b", { class = "name", hint = "under" })
    refused("if string.match(req.tag, 'x') then return a end return b", { class = "name",
      hint = "glob" })
    for _, name in ipairs { "pcall", "setmetatable", "require", "coroutine", "load", "getfenv",
      "rawget",
                            "collectgarbage", "debug", "jit", "io", "newproxy" } do
      refused("local x = " .. name .. " return a", { class = "name" })
    end
  end)
end)

describe("what pick returns", function()
  it("is refused where it is not a strategy", function()
    refused("if req.size > 1 then return a end", { class = "return", reason = "nil", line = 3 })
    refused("return 5", { class = "return", reason = "number" })
    refused("return req.size", { class = "return", reason = "number of the request" })
    refused("return req.tag", { class = "return", reason = "string of the request" })
    refused("return 'a'", { class = "return", hint = "^return a strategy on every path" })
    refused("return loam.deny", { class = "return", hint = "^call the function; call" })
  end)

  it("is refused where it is two strategies, of which one would never serve", function()
    refused("if req.size > 1 then return a, b end\nreturn c", { class = "return",
      reason = "^pick returned two strategies$", hint = "^write a:or_else%(b%)" })
    assert.is_nil(support.refusal("return a, nil"))
    assert.is_nil(support.refusal("return a, req.size"))
  end)

  it("is refused where strategies are joined as numbers or strings are", function()
    for _, operator in ipairs { "+", "..", "/" } do
      refused("return a " .. operator .. " b", { class = "type",
        reason = "^strategies are not joined with '%" .. operator,
        hint = "^write a:or_else%(b%)$" })
    end
    refused("return a(b)", { class = "type", reason = "^a strategy is not a function$" })
  end)

  it("is shown with the conditions that led there", function()
    local d = refused("if req.size >= 4096 then\nif req.zero then return nil end\nend return a",
      { class = "return", line = 3 })
    assert.same({ { line = 2, condition = "req.size >= 4096", holds = true },
                  { line = 3, condition = "req.zero", holds = true } }, d.led)
  end)
end)

describe("errors of the policy's own", function()
  it("are refusals with their text", function()
    refused("error('no such tag')", { class = "error", reason = "no such tag" }, "x")
    refused("assert(req.size > 5, 'too small') return a", { class = "error", reason = "too small" })
    refused("assert(false) return a", { class = "error" })
    refused("error({})", { class = "table" })
    refused("error(bad)", { class = "error", reason = "a table, not with text", hint = "text" },
      nil, "local bad = {} ")
    refused("error()", { class = "error", reason = "^error was called with no text$" })
  end)

  it("end recursion", function()
    refused("return forever(1)", { class = "recursion", line = 1 }, nil,
      "local function forever(n) return 1 + forever(n + 1) end ")
  end)
end)

describe("the request", function()
  it("is not iterated, called or kept", function()
    refused("for k in pairs(req) do end return a", { class = "field" })
    refused("req.size() return a", { class = "type" })
    refused("local n = #req.size return a", { class = "type" })
    refused("local n = req.size.x return a", { class = "type" })
    refused("for _ in ipairs(req.tag) do end return a", { class = "type" })
    refused("return req[req.size]", { class = "field" })
  end)
end)

describe("an expression too long for the evaluator", function()
  it("is refused by its size", function()
    refused("local n = req.size for _ = 1, 20 do n = n + n end if n > 1 then return a end return b",
      { class = "expression" })
    refused("local n = req.size for _ = 1, 40 do n = req.live - n end return n > 1 and a or b",
      { class = "expression" })
  end)
end)

describe("a file", function()
  local function file_refused(text, class, line)
    local d = support.refused(text)
    assert.is_truthy(d, text)
    assert.equal(class, d.class, d.reason)
    if line then assert.equal(line, d.line) end
    return d
  end

  it("ends by returning a policy, with a newline", function()
    file_refused("", "file")
    file_refused("\n\n", "file")
    file_refused("return loam.policy { pick = function() end }", "file")
    file_refused("local x = 1\n", "policy")
    file_refused("return 5\n", "policy")
    file_refused("return loam.policy { apply = 'all', pick = function() end }\n", "policy")
    file_refused("return { pick = function() end }\n", "policy")
  end)

  it("is text", function()
    file_refused(string.dump(function() end) .. "\n", "file")
    file_refused("local x = '\0'\n", "file", 1)
  end)

  it("is Lua", function()
    file_refused("return loam.policy {\n", "syntax", 2)
    file_refused("if x = 1 then end\n", "syntax", 1)
  end)

  it("gives loam.policy what it knows", function()
    assert.matches("'tests'",
      file_refused("return loam.policy { pick = function() end, test = {} }\n",
      "policy", 1).suggestion)
    file_refused("return loam.policy { name = 'x' }\n", "policy", 1)
    file_refused("return loam.policy { pick = 5 }\n", "policy", 1)
    file_refused("return loam.policy(5)\n", "policy", 1)
    file_refused("return loam.policy { pick = function() end, always = { function() end } }\n",
      "policy", 1)
  end)

  it("is refused in its own run, with the line", function()
    file_refused("local x = 1\nlocal y = x.y.z\nreturn 1\n", "nil", 2)
    file_refused("local s = loam.host {}\nif s.size then end\n", "field", 2)
    file_refused("local n = loam.node(0).free\n", "field", 1)
    file_refused("local n = loam.pressure()\n", "field", 1)
    file_refused("string.x = 5\n", "write", 1)
  end)

  it("may have any name", function()
    for _, name in ipairs { "a:b:1: c.lua", ("long/"):rep(40) .. "p.lua", "=x", "\n" } do
      local _, errors = require("loam.compiler.policy").open(name, "local x = 1\nlocal y = x.y.z\n")
      assert.equal("nil", errors[1].class, name)
      assert.equal(2, errors[1].line)
    end
  end)
end)

describe("a word that stands in a table", function()
  it("is shown with its table where it was written alone", function()
    for name, whole in pairs { MiB = "loam.MiB", tag = "req.tag", size = "req.size" } do
      refused("if req.size > " .. name .. " then return a end return a",
        { class = "name", reason = "there is no '" .. name .. "'", hint = "^write " .. whole })
    end
  end)
end)

describe("a comparison with two strings that 'or' joins", function()
  it("is refused, with and without parentheses", function()
    for _, body in ipairs {
      "if req.tag == ('a' or 'b') then return b end return a",
      "if req.tag == 'a' or 'b' then return b end return a",
      "if req.size > 1 and (req.tag == 'a' or 'b' or 'c') then return b end return a",
    } do
      refused(body, { class = "type", reason = "'or' joins two strings",
        hint = 'write req.tag == "a" or req.tag == "b"' })
    end
    refused("if req.tag ~= 'a' or 'b' then return b end return a", { class = "type",
      hint = 'write req.tag ~= "a" and req.tag ~= "b"' })
  end)

  it("is not seen where the second one begins another comparison", function()
    assert.equal("b b a", support.tags(
      "if req.tag == 'x' or 'y' == req.tag then return b end return a", { "x", "y", "z" }))
    assert.equal("b b b", support.tags(
      "if req.tag == 'x' or ('y'):is(word) then return b end return a", { "x", "y", "z" },
      "local word = 'y' "))
  end)
end)

describe("a name that a policy does not have", function()
  it("is suggested from the local variables of the file", function()
    refused("if req.zero then return Cache end return b", { class = "name",
      reason = "^there is no 'Cache'$", hint = "^did you mean 'cache'%?$" }, nil,
      "local cache = loam.host { name = 'cache', align = 64 } ")
    refused("return is_lage(req.size) and a or b", { class = "name",
      hint = "^did you mean 'is_large'%?$" }, nil,
      "local function is_large(size) return size > 9 end ")
    refused("return banana", { class = "name", reason = "^there is no 'banana'$", hint = "^nil$" })
  end)

  it("is told where it is declared too late", function()
    local d = support.refused("local n = MB * 4\n\nlocal MB = 2 ^ 20\n")
    assert.equal("line 3 declares 'MB': a local variable is known behind its line, to the end of "
      .. "its block", d.suggestion)
  end)
end)
