-- test_spec.lua - what the answer to `test` says of tests and invariants that fail.

local support = require("support")
local inspect = support.inspect

-- Returns the answer of a verb about a policy with this body of pick and these other fields.
local function answer(verb, body, fields)
  return inspect("local a = loam.host { name = 'a' }\n"
    .. "local other = loam.host { name = 'a', align = 64 }\n"
    .. "return loam.policy {\n  pick = function(req) " .. body .. " end,\n  " .. fields .. ",\n}\n",
    "verb " .. verb)[1]
end

describe("test", function()
  it("names a test by all strings of its request", function()
    local found = answer("test", "return a",
      "tests = { { file = 'a.c', func = 'f', module = 'm', line = 7, size = 1, expect = a } }")
    assert.equal("tag '', file 'a.c', func 'f', module 'm', size 1, line 7", found.tests[1].what)
  end)

  it("tells strategies of one name apart by their lines", function()
    local body = "if req.size > 9 then return other end return a:or_else(other)"
    local fields = "tests = { { size = 1, expect = other }, { size = 10, expect = other } }"
    local found = answer("test", body, fields)
    assert.equal("a of line 2", found.tests[1].expect)
    assert.equal("a of line 1 or else a of line 2", found.tests[1].got)
    assert.equal("a", found.tests[2].expect)
    assert.equal("a", found.tests[2].got)
    assert.matches("expects 'a' of line 2 and gets 'a' of line 1 or else 'a' of line 2$",
      answer("check", body, fields).errors[1].reason)
  end)

  it("says of no invariant that it holds where a class has no plan", function()
    local always = "always = { ['is small'] = function(req, got) %s return not got.limit end }"
    assert.is_true(answer("test", "return a", always:format("")).always[1].ok)
    local failing = answer("test", "return a", always:format("if req.zero then error('no') end"))
    assert.is_false(failing.always[1].ok)
    assert.matches("not decided", failing.always[1].what)
    local unpicked = answer("test", "if req.tag:is 'x' then error('no') end return a",
      always:format(""))
    assert.is_false(unpicked.always[1].ok)
  end)
end)
