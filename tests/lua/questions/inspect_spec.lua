-- inspect_spec.lua - the answers of check, explain, plan and test, and the functions that core
-- calls.

local support = require("support")
local driver = require("loam.driver")
local core, inspect = support.core, support.inspect

local PRODUCTION = [[
local MiB = loam.MiB

local scratch = loam.host { name = "scratch", align = 64 }
local tensors = loam.host { name = "tensors", align = 64, numa = "local", huge = "thp" }

return loam.policy {
  name = "production",
  pick = function(req)
    if req.tag:under("tensor") and req.size >= 4 * MiB then
      return tensors:or_else(scratch)
    end
    return scratch
  end,
  tests = {
    { tag = "tensor.weights", size = 8 * MiB, expect = tensors },
    { tag = "log",            size = 100,     expect = scratch },
  },
  always = {
    ["logs never on huge pages"] = function(req, got)
      return not req.tag:under("log") or not got.huge
    end,
  },
}
]]

local function broken(from, to)
  local text, n = PRODUCTION:gsub(from, to)
  assert(n > 0)
  return text
end

describe("check", function()
  -- Returns the warnings of check about a policy with this body, as "class: reason" texts.
  local function warnings(above, body)
    local texts = {}
    for i, w in ipairs(inspect(support.file(body, above), "verb check")[1].warnings) do
      texts[i] = w.line .. " " .. w.class .. ": " .. w.reason .. "; " .. w.suggestion
    end
    return texts
  end

  local USE_ALL = "if req.size == 1 then return b end if req.size == 2 then return c end return a"

  it("warns of what is probably a mistake about a strategy", function()
    assert.same({}, warnings("", USE_ALL))
    assert.same({ "1 name: strategy 'a': the strategy on line 1 has this name too; give each "
      .. "strategy a name of its own: loam stats shows names" },
      warnings("local d = loam.host { name = 'a', align = 64 }",
        "if req.size == 3 then return d end " .. USE_ALL))
    assert.same({ "1 name: strategy 'd': the strategy on line 1 differs in its limit alone, so "
      .. "both count together, and each refuses by the sum; give each strategy a name of its own" },
      warnings("local d = loam.host { name = 'd' } "
        .. "local e = loam.host { name = 'd', limit = 2 ^ 20, soft = 2 ^ 19 }",
        "if req.size == 3 then return d end if req.size == 4 then return e end " .. USE_ALL))
    assert.same({ "1 unused: strategy 'd': it denies the request, so no strategy behind it in a "
      .. "chain serves; leave out what follows: it is reached by no request" },
      warnings("local d = loam.deny { name = 'd' }",
        "if req.size == 3 then return b:or_else(d):or_else(c) end " .. USE_ALL))
    assert.same({}, warnings("local d = loam.deny { name = 'd' }",
      "if req.size == 3 then return b:or_else(d) end " .. USE_ALL))
    assert.same({ "1 limit: strategy 'd': it denies every request, so its limit bounds nothing; "
      .. "give the limit to a strategy that serves: a request above it fails" },
      warnings("local d = loam.deny { name = 'd', limit = 2 ^ 20 }",
        "if req.size == 3 then return d end " .. USE_ALL))
    assert.same({ "1 limit: strategy 'd': limit = 5 is in bytes, and less than a page; did you "
      .. "mean 5 * loam.MiB?" },
      warnings("local d = loam.host { name = 'd', limit = 5 }",
        "if req.size == 3 then return d end " .. USE_ALL))
    assert.same({ "1 limit: strategy 'd': soft = 5 is in bytes, and less than a page; did you "
      .. "mean 5 * loam.MiB?" },
      warnings("local d = loam.host { name = 'd', limit = 2 ^ 30, soft = 5 }",
        "if req.size == 3 then return d end " .. USE_ALL))
    assert.same({ "1 unused: strategy 'd': pick returns it for no request; remove it, or let pick "
      .. "return it" },
      warnings("local d = loam.host { name = 'd', align = 64 }",
        "if req.size > 10 and req.size < 5 then return d end " .. USE_ALL))
    assert.same({}, warnings("local d = loam.host { name = 'd', align = 64 }",
      "if req.tag:under 'deep.down' then return a:or_else(d) end " .. USE_ALL))
  end)

  it("warns of a * or a ? outside of a pattern of :glob", function()
    local above = "local t = { ['a?'] = 1, b = 2 }"
    assert.same({},
      warnings(above, "if req.tag:glob 'm*' or t.b == 1 then return b end " .. USE_ALL))
    assert.same({
      [[2 text: req.tag == "m.*" compares * and ? as characters; write req.tag:glob("m.*")]],
      [[2 text: req.func:under("*") compares * and ? as characters; write req.func:glob("*")]],
      [[2 text: req.module == "a?" compares * and ? as characters; write req.module:glob("a?")]] },
      warnings(above, "if req.tag == 'm.*' or 'm.*' == req.tag or req.func:under '*' "
        .. "or t[req.module] == 1 then return b end " .. USE_ALL))
  end)

  it("warns of a list of cases in a pattern, as a shell has it", function()
    local found = {}
    for _, text in ipairs(warnings("", "if req.tag:glob 'm.[ab]' or req.module:glob '{a,b}' "
      .. "or req.func:glob '*[abi:cxx11]*' then return b end " .. USE_ALL)) do
      if text:find("a pattern for each case", 1, true) then found[#found + 1] = text end
    end
    assert.same({
      [[2 text: req.tag:glob("m.[ab]") compares [ as a character; write a pattern for each case: ]]
        .. [[req.tag:glob("a*") or req.tag:glob("b*")]],
      [[2 text: req.module:glob("{a,b}") compares { as a character; write a pattern for each ]]
        .. [[case: req.module:glob("a*") or req.module:glob("b*")]] }, found)
  end)

  it("warns of a string that is compared with a number, or looked up among numbers", function()
    local found = {}
    for _, w in ipairs(warnings("local t, mixed = { [7] = b, [8] = c }, { [7] = b, x = c }",
      "local p = req.tag:part(2) if p == 7 or 7 == p or p == 0/0 or t[p] or mixed[p] or p == nil "
      .. "then return b end " .. USE_ALL)) do
      if w:find("string", 1, true) then found[#found + 1] = w end
    end
    assert.same({
      [[2 text: req.tag:part(2) == 7 compares a string with a number, so it is never true; ]]
        .. [[write req.tag:part(2) == "7"]],
      [[2 text: the table that is indexed with req.tag:part(2) has numbers as keys, so it has no ]]
        .. [[value for a string; write the keys as strings: { ["7"] = ... }]] }, found)
  end)
end)

describe("check of lines that return", function()
  local function unreached(body, above)
    local lines = {}
    for _, w in ipairs(inspect(support.file(body, above), "verb check")[1].warnings) do
      if w.reason:find("^pick returns here for no request") then lines[#lines + 1] = w.line end
    end
    return lines
  end

  it("warns of those that conditions above leave no request", function()
    assert.same({ 6 }, unreached("if req.tag:under 'x' then\n return b\nend\n"
      .. "if req.tag:under 'x.y' then\n return c\nend\nreturn a"))
    assert.same({ 5 }, unreached("if req.size >= 4096 then\n return b\n"
      .. "elseif req.size >= 2 ^ 20 then\n return c:or_else(a)\nend\nreturn a"))
  end)

  it("says nothing of a policy whose paths are too long to run all of them", function()
    assert.same({}, unreached("for i = 1, 500 do\n if req.size < i * 8 then\n"
      .. "  return i % 2 == 0 and b or c\n end\nend\nif req.size < 8 then return b end\n"
      .. "return a"))
  end)

  it("warns of them also where the condition is on that line", function()
    assert.same({ 3 }, unreached("if req.tag:under 'x' then return b end\n"
      .. "if req.tag:under 'x.y' then return c:or_else(b) end\nreturn a"))
    assert.same({ 3 }, unreached("if req.size >= 4096 then return b end\n"
      .. "if req.size >= 8192 then return c end\nreturn a"))
  end)

  it("is silent where a function of the policy runs last", function()
    local above = "local function big(r)\n return r.size > 9\nend\n"
      .. "local function choose(r)\n if r.zero then return b end\n return c\nend\n"
    assert.same({}, unreached("if req.line == 3 then return choose(req, b:or_else(a)) end\n"
      .. "if req.line == 4 then return big(req) and a or b end\nreturn c", above))
  end)

  it("is silent about lines that may be for another machine", function()
    assert.same({}, unreached("for _, n in ipairs(loam.devices()) do\n"
      .. "if loam.device(n).free > 9 then return b end\nend\nreturn a"))
    assert.same({}, unreached("if not loam.node(0).cpus then return b end\nreturn a"))
  end)

  it("is silent where each line returns for some request", function()
    assert.same({}, unreached("if req.tag:under 'x.y' then\n return c\nend\n"
      .. "if req.tag:under 'x' then\n return b\nend\nreturn a"))
    assert.same({}, unreached("if req.size > 9 then return choose(req) end\n"
      .. "for i = 1, 3 do\n if req.line == i then\n return c\n end\nend\n"
      .. "return b\n :or_else(a)", "local function choose(r)\n if r.zero then return b end\n"
      .. "return c end "))
  end)
end)

describe("check of names of files", function()
  local noted = 0 -- a state of Lua, which has one policy outside of tests, keeps its warnings

  -- Returns "LINE REASON; SUGGESTION" of the new warning about a policy that asks this question.
  local function doubt(question)
    local body, found = "if " .. question .. " then return b end return a", {}
    for _, w in ipairs(inspect(support.file(body), "verb check")[1].warnings) do
      if w.class == "tag" then found[#found + 1] = w end
    end
    local w = found[noted + 1]
    noted = #found
    return w and w.line .. " " .. w.reason .. "; " .. w.suggestion or nil
  end

  it("warns of tags that no unmodified program has", function()
    assert.equal('2 req.tag:under("malloc.libssl.so.3") is true for no unmodified program: there a '
      .. 'tag is malloc.FILE, where FILE is the name of a file up to its first dot; write '
      .. 'req.tag:under("malloc.libssl")', doubt("req.tag:under 'malloc.libssl.so.3'"))
    for question, instead in pairs {
      ["req.tag == 'malloc.python3.11'"] = 'req.tag == "malloc.python3"',
      ["req.tag:is '/usr/lib/libz.so.1'"] = 'req.tag:is("malloc.libz")',
      ["req.tag:under 'malloc./usr/sbin/nginx'"] = 'req.tag:under("malloc.nginx")',
      ["req.tag == 'Malloc.nginx'"] = 'req.tag == "malloc.nginx"',
      ["req.module == 'libssl.so'"] = 'req.module == "libssl"',
      ["req.tag:under 'cache.'"] = 'req.tag:under("cache")',
    } do
      assert.equal("write " .. instead, doubt(question):match("; (.*)$"), question)
    end
  end)

  it("warns of the tag malloc alone, which nearly no code has", function()
    assert.equal('2 req.tag == "malloc" is true only for code in no file, such as that of a JIT '
      .. 'compiler; write req.tag:under("malloc") for all code', doubt("req.tag == 'malloc'"))
  end)

  it("is silent about tags that there may be", function()
    for _, question in ipairs {
      "req.tag:under 'malloc'", "req.tag == 'malloc.redis-check-rdb'", "req.tag:is 'libcache'",
      "req.tag:under 'cache.big'", "req.module == 'numpy.core'", "req.func == 'f.part.0'",
      "req.file == 'src/a.c'", "req.tag:part(2) == 'libz'", "req.tag:glob 'malloc.lib*'",
    } do
      assert.is_nil(doubt(question))
    end
  end)
end)

describe("a chain behind a denial", function()
  it("is left out, because nothing of it is tried", function()
    local answer = inspect(support.file("return a:or_else(d):or_else(b:or_else(c))",
      "local d = loam.deny { name = 'd' } "), "verb explain\ntag x\nsize 1")[1]
    assert.same({ "a", "d" }, answer.chain)
    assert.equal("a b", support.answers("return req.size == 1 and a or a:or_else(d):or_else(b) "
      .. "== a:or_else(d) and b or c", { 1, 2 }, "", "local d = loam.deny { name = 'd' } "))
  end)
end)

describe("plan of remainders", function()
  -- Returns the conditions of the rows of the plan of a policy with this body, as one text.
  local function rows(body)
    local out = {}
    for i, row in ipairs(inspect(support.file(body), "verb plan\ntag x")[1].rows) do
      local words = {}
      for j, step in ipairs(row.conditions) do
        words[j] = step.condition .. (step.holds and "" or " not")
      end
      out[i] = table.concat(words, ", ") .. ": " .. row.strategy
    end
    return table.concat(out, "\n")
  end

  it("has no rows that no number reaches", function()
    assert.equal("req.size % 8 == 0: a\n"
      .. "req.size % 8 == 0 not, req.size % 8 < 4: b\n"
      .. "req.size % 8 == 0 not, req.size % 8 < 4 not, req.size % 8 >= 4, req.size % 8 > 0: c",
      rows("local r = req.size % 8 if r == 0 then return a end if r < 4 then return b end "
        .. "if r >= 4 and r ~= 9 and r > 0 then return c end return a:or_else(b)"))
    assert.equal("req.size == 24, req.size % 8 == 0: b\nreq.size == 24 not, req.size % 8 == 3: a\n"
      .. "req.size == 24 not, req.size % 8 == 3 not: c",
      rows("if req.size == 24 then return req.size % 8 == 0 and b or a end "
        .. "if req.size % 8 == 3 then return a end return c"))
  end)
end)

describe("explain", function()
  it("takes strings of several lines, and shows them as a policy writes them", function()
    local file = support.file("if req.tag == 'malloc.x\\ny' and req.file == '\\27' then "
      .. "return b end return a")
    local query = "verb explain\nhex tag h6d616c6c6f632e780a79\nhex file h1b\nsize 1"
    local answer = inspect(file, query)[1]
    assert.equal("malloc.x\ny", answer.tag)
    assert.same({ 'req.tag == "malloc.x\\ny"', 'req.file == "\\27"' },
      { answer.path[1].condition, answer.path[2].condition })
    for _, word in ipairs { "tag 61", "size h31", "tag", "tag h6x" } do
      local _, words = inspect(file, "verb explain\nsize 1\nhex " .. word)
      assert.equal("hex '" .. word .. "': must be a key and a word", words)
    end
  end)

  it("tells the strategy, the lines and the conditions in order", function()
    local answer = inspect(PRODUCTION, "verb explain\ntag tensor.w\nsize 8388608")[1]
    assert.same({
      verb = "explain", version = 1, ok = true, tag = "tensor.w", size = 8388608,
      strategy = { name = "tensors", kind = "host", align = 64, numa = "local", huge = "thp" },
      chain = { "tensors", "scratch" }, line = 10, generation = 1,
      path = { { line = 9, condition = 'req.tag:under("tensor")', holds = true },
               { line = 9, condition = "req.size >= 4194304", holds = true } },
    }, answer)
    answer = inspect(PRODUCTION, "verb explain\ntag log\nsize 8388608")[1]
    assert.equal("scratch", answer.strategy.name)
    assert.equal(12, answer.line)
    assert.equal(1, #answer.path)
  end)

  it("takes every input", function()
    local text = support.file([[
      if req.zero and req.align == 64 and req.node == 1 and req.live == 9 and req.device == 0
        and req.file == "f" and req.func == "g" and req.module == "m" and req.line == 3 then
        return a
      end
      return b]])
    local answer = inspect(text,
      "verb explain\ntag \nsize 1\nzero 1\nalign 64\nnode 1\nlive 9\ndevice 0\n"
      .. "file f\nfunc g\nmodule m\nline 3")[1]
    assert.equal("a", answer.strategy.name)
    assert.equal(9, #answer.path)
  end)

  it("takes an alignment below 16 for 16, as each block has that", function()
    local file = support.file("if req.align < 16 then return a end return b",
      "", "tests = { { size = 1, align = 8, expect = b } }")
    for _, how in ipairs { "align 8\nsize 1", "align 1\nsize 1" } do
      assert.equal("b", inspect(file, "verb explain\ntag \n" .. how)[1].strategy.name)
    end
  end)

  it("answers a batch line by line, bad lines too", function()
    local path = os.tmpname()
    local file = io.open(path, "w")
    file:write("tensor.a\t4194304\nlog\t5\t64\t1\nbad\ntensor.b\t-1\nlast\t7")
    file:close()
    local answers = inspect(PRODUCTION, "verb explain\nbatch " .. path)
    os.remove(path)
    assert.equal(5, #answers)
    assert.equal("tensors", answers[1].strategy.name)
    assert.equal("log", answers[2].tag)
    assert.equal(3, answers[3].errors[1].line)
    assert.is_false(answers[4].ok)
    assert.equal(7, answers[5].size)
    local _, words = inspect(PRODUCTION, "verb explain\nbatch /nowhere/at/all")
    assert.matches("/nowhere/at/all: No such file", words)
  end)

  it("tells each tag of a batch which key of a table it is", function()
    local path = os.tmpname()
    local file = io.open(path, "w")
    file:write("x\t1\ny\t1\nx\t2\nz\t3\n")
    file:close()
    local answers = inspect(support.file("return by[req.tag] or b",
      "local by = { x = a, y = a } "), "verb explain\nbatch " .. path)
    os.remove(path)
    local told = {}
    for i, answer in ipairs(answers) do told[i] = answer.path[1].condition end
    assert.same({ 'req.tag == "x"', 'req.tag == "y"', 'req.tag == "x"',
                  "req.tag is a key of the table" },
      told)
  end)

  it("shows a member that this machine lacks, and decides by the rest", function()
    local text = support.file("return loam_pinned:or_else(a)",
      "local loam_pinned = loam.pinned { name = 'p' } ")
    local answer = inspect(text, "verb explain\ntag x\nsize 1")[1]
    assert.same({ "p", "a" }, answer.chain)
    assert.equal("pinned", answer.strategy.kind)
  end)

  it("takes nodes to have free what they have", function()
    local text = support.file("if loam.node(1).free > 5000 then return a end return b")
    core.the_free = { [0] = 9000, [1] = 5001 }
    assert.equal("a", inspect(text, "verb explain\ntag x\nsize 1")[1].strategy.name)
    core.the_free = { [0] = 9000, [1] = 5000 }
    assert.equal("b", inspect(text, "verb explain\ntag x\nsize 1")[1].strategy.name)
    core.the_free = {}
  end)

  it("takes nodes and devices to have free what the query says", function()
    local text = support.file("if loam.node(1).free > 5000 then return a end return b")
    core.the_free = { [0] = 9000, [1] = 5001 }
    local asked = "verb explain\ntag x\nsize 1\nnodefree "
    assert.equal("b", inspect(text, asked .. "1 5000")[1].strategy.name)
    assert.equal("a", inspect(text, asked .. "0 5000")[1].strategy.name)
    core.the_free = { [0] = 9000, [1] = 4000 }
    assert.equal("a", inspect(text, asked .. "0 1\nnodefree 1 6000")[1].strategy.name)
    core.the_free = {}
    local _, words = inspect(text, asked .. "64 1")
    assert.matches("nodefree '64 1': must be a number from 0 to 63, a blank, and bytes", words, 1,
      true)
  end)

  it("of a refused policy is its errors", function()
    local answer = inspect(broken("req.size", "req.szie"), "verb explain\ntag x\nsize 1")[1]
    assert.is_false(answer.ok)
    assert.equal("field", answer.errors[1].class)
    assert.equal(9, answer.errors[1].line)
    assert.matches("req.szie", answer.errors[1].source)
    assert.matches("size", answer.errors[1].suggestion)
  end)
end)

describe("plan", function()
  it("has a row for each leaf", function()
    local answer = inspect(PRODUCTION, "verb plan\ntag tensor.w")[1]
    assert.equal(2, answer.leaves)
    assert.same({ "tensors", "scratch" }, answer.rows[1].chain)
    assert.equal(10, answer.rows[1].line)
    assert.equal("scratch", answer.rows[2].strategy)
    assert.same({ line = 9, condition = "req.size >= 4194304", holds = false },
      answer.rows[2].conditions[2])
  end)
end)

describe("check", function()
  it("lists what a load would compile", function()
    local answer = inspect(PRODUCTION, "verb check\ntag extra.one")[1]
    assert.is_true(answer.ok)
    assert.equal("production", answer.name)
    local tags = {}
    for i, entry in ipairs(answer.tags) do tags[i] = entry.tag end
    assert.equal(" tensor.weights log extra.one", table.concat(tags, " "))
    assert.equal(2, answer.tests)
    assert.equal(1, answer.always)
    assert.equal(2, #answer.strategies)
  end)

  it("finds what only a tag that the policy names would meet", function()
    local answer = inspect(support.file("if req.tag:under('odd') then return nil end return a"),
      "verb check")[1]
    assert.is_false(answer.ok)
    assert.equal("return", answer.errors[1].class)
  end)

  it("explores parts of tags", function()
    local answer = inspect(support.file(
      "if req.tag:under('t') and by[req.tag:part(2)] then return nil end return a",
      "local by = { acme = true } "), "verb check")[1]
    assert.is_false(answer.ok)
  end)

  it("shows failing tests and invariants", function()
    local answer = inspect(broken("expect = scratch", "expect = tensors"), "verb check")[1]
    assert.equal("test", answer.errors[1].class)
    assert.equal(16, answer.errors[1].line)
    assert.matches("test 2 %(tag 'log', size 100%) expects 'tensors' and gets 'scratch'",
      answer.errors[1].reason)
    answer = inspect(broken("not got.huge", "got.huge"), "verb check")[1]
    assert.equal("always", answer.errors[1].class)
    assert.equal(12, answer.errors[1].line)
  end)
end)

describe("test", function()
  it("tells each test, each invariant and the leaves not reached", function()
    local answer = inspect(PRODUCTION, "verb test")[1]
    assert.is_true(answer.ok)
    assert.same({ n = 1, ok = true, what = "tag 'tensor.weights', size 8388608", line = 15,
                  got = "tensors or else scratch", expect = "tensors" }, answer.tests[1])
    assert.same({ name = "logs never on huge pages", ok = true, line = 19 }, answer.always[1])
    assert.equal(4, answer.coverage.leaves)
    assert.equal(2, answer.coverage.covered)
    assert.equal("tensor.weights", answer.coverage.missed[1].tag)
    assert.equal(12, answer.coverage.missed[1].line)
  end)

  it("fails where one fails", function()
    local answer = inspect(broken("expect = scratch", "expect = tensors"), "verb test")[1]
    assert.is_false(answer.ok)
    assert.is_false(answer.tests[2].ok)
    answer = inspect(broken("not got.huge", "got.huge"), "verb test")[1]
    assert.is_false(answer.always[1].ok)
    assert.matches("strategy 'scratch'", answer.always[1].what)
  end)

  it("compares whole chains where one is expected", function()
    local text = broken("expect = tensors", "expect = tensors:or_else(scratch)")
    assert.is_true(inspect(text, "verb test")[1].ok)
    text = broken("expect = tensors", "expect = scratch:or_else(tensors)")
    assert.is_false(inspect(text, "verb test")[1].ok)
  end)

  it("are checked themselves", function()
    for _, change in ipairs { { "expect = scratch", "expct = scratch" }, { "size = 100",
      "size = -1" },
                              { "size = 100, ", "" }, { "expect = scratch",
                                "expect = \"scratch\"" },
                              { "size = 100", "align = 3, size = 1" } } do
      local answer = inspect(broken(change[1], change[2]), "verb test")[1]
      assert.equal("test", answer.errors[1].class)
      assert.equal(16, answer.errors[1].line)
    end
  end)
end)

describe("a query", function()
  it("is refused where it is not valid", function()
    for query, reason in pairs {
      ["verb dance"] = "verb", ["verb explain"] = "needs a size",
        ["verb explain\nsize x"] = "size 'x': must be",
      ["verb explain\nsize -1"] = "size", ["verb explain\nalign 3\nsize 1"] = "power of two",
      ["verb explain\nsize 1\nzero yes"] = "zero", ["verb plan\ncolour red"] = "no key 'colour'",
      ["verb explain\nsize 1\nnode_free 0=5"] = "no key 'node_free'",
    } do
      local answer, words = inspect(PRODUCTION, query)
      assert.is_nil(answer)
      assert.matches(reason, words)
    end
  end)
end)

describe("the driver", function()
  it("opens, names, compiles and vets", function()
    assert.is_true(driver.open("prod.lua", PRODUCTION))
    assert.equal("production", driver.name())
    local bytes, plans = driver.classes()
    local _, find = core.class_tree(bytes)
    assert.equal(2, #plans)
    assert.equal(find { tag = "x" }, find { tag = "y.z" })
    assert.are_not.equal(find { tag = "log.x" }, find { tag = "tensor" })
    assert.is_true(driver.vet())
  end)

  it("answers with complete words", function()
    local ok, words = driver.open("prod.lua", broken("req.size", "req.szie"))
    assert.is_nil(ok)
    assert.matches("^prod.lua:9: field: req has no field 'szie'\n", words)
    assert.matches("did you mean", words)
    driver.open("prod.lua", broken("not got.huge", "got.huge"))
    local bytes
    bytes, words = driver.classes()
    assert.is_nil(bytes)
    assert.matches("always", words)
  end)

  it("passes budgets on", function()
    local step = core.step
    core.step = function(what)
      if what:find("^tracing") then error("loam-budget: " .. what, 0) end
    end
    driver.open("prod.lua", PRODUCTION)
    local ok, problem = pcall(driver.classes)
    core.step = step
    assert.is_false(ok)
    assert.equal("loam-budget: tracing tag ''", problem)
    assert.is_truthy(driver.classes())
  end)

  it("refuses a policy for a class that no test names", function()
    assert.is_true(driver.open("p.lua",
      support.file("if req.tag:under('odd') then return nil end return a")))
    local bytes, words = driver.classes()
    assert.is_nil(bytes)
    assert.matches("pick returned nil", words)
  end)
end)
