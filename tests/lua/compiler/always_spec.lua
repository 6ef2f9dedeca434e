-- always_spec.lua - invariants are decided at every leaf, and a violation has a witness.

local support = require("support")

local function refusal(body, invariant, where, above)
  return support.refusal(body, where, above, "always = { [\"it holds\"] = function(req, got) "
    .. invariant .. " end },")
end

describe("an invariant", function()
  it("that holds refuses nothing", function()
    assert.is_nil(refusal("if req.size > 100 then return a end return b",
      "return req.size > 100 or got.name ~= 'a'"))
  end)

  it("that fails at one size is found, with that size", function()
    local d = refusal("if req.size >= 1000 then return a end\nreturn b",
      "return got.name ~= 'a' or req.size ~= 123456")
    assert.equal("always", d.class)
    assert.equal(2, d.line)
    assert.matches("\"it holds\" does not hold for strategy 'a' for size 123456", d.reason)
    assert.same({ { line = 2, condition = "req.size >= 1000", holds = true } }, d.led)
  end)

  it("that fails at all alignments but the usual one is shown with another alignment", function()
    local d = refusal("if req.align == 16 then return a end return b", "return got.name ~= 'b'")
    assert.matches("for size 0, align 32$", d.reason)
  end)

  it("is decided for each member of a chain", function()
    local d = refusal("return a:or_else(b)", "return got.name ~= 'b'")
    assert.matches("strategy 'b'", d.reason)
  end)

  it("counts by Lua's truth", function()
    assert.is_nil(refusal("return a", "return 0"))
    assert.equal("always", refusal("return a", "return nil").class)
    assert.equal("always", refusal("return a", "").class)
  end)

  it("that computes with an option which the strategy lacks has a hint", function()
    for _, invariant in ipairs { "return got.limit < 4096", "return got.align + 1 > 64",
                                 "return got.numa[1] == 0" } do
      local d = refusal("return a", invariant)
      assert.matches("^always \"it holds\": .*nil", d.reason)
      assert.equal("an option that the strategy does not have is nil: write got.limit and "
        .. "got.limit < 4096", d.suggestion)
    end
  end)

  it("that writes or builds a table is named, and not pick", function()
    local d = refusal("return a", "local t = { 1 } return t[1] == 1")
    assert.equal("always \"it holds\" builds a table", d.reason)
    d = refusal("return a", "n = n + 1 return true", nil, "local n = 0 ")
    assert.equal("always \"it holds\" writes to 'n', a local variable outside it, which outlives "
      .. "the request", d.reason)
    assert.equal("set local variables of the function only: its answer has to depend on the "
      .. "request alone", d.suggestion)
  end)

  it("sees what the strategy is, absent options as nil", function()
    assert.is_nil(refusal("return s", [[
      return got.kind == "host" and got.align == 64 and got.huge == "thp" and got.zero == nil
        and got.guard == true and got.limit == nil and got.numa[1] == 0 ]], "",
      "local s = loam.host { align = 64, huge = 'thp', guard = true, numa = { 0 } } "))
    local d = refusal("return a", "return got.hueg ~= 'thp'")
    assert.equal("field", d.class)
    assert.matches("always \"it holds\"", d.reason)
    assert.matches("huge", d.suggestion)
  end)

  it("may ask for each option that a strategy can have", function()
    refusal("return a", "return true") -- which loads the modules
    local options = require("loam.language.options")
    for _, kind in ipairs { "host", "pinned", "device", "managed", "shared", "file" } do
      for _, option in ipairs(options.names(kind)) do
        assert.is_nil(refusal("return a", ("return got.%s ~= 7"):format(option)))
      end
    end
  end)

  it("may compare fields of what the strategy is, but not that with a strategy", function()
    for _, invariant in ipairs { "return got == a", "return b:or_else(a) ~= got" } do
      local d = refusal("return a", invariant)
      assert.equal("type", d.class)
      assert.matches("got describes a strategy, and is equal to none", d.reason, 1, true)
      assert.matches("^write got.name == \"[ab]\"$", d.suggestion)
    end
    assert.is_nil(refusal("return a", "return a ~= b and a:or_else(b) ~= b:or_else(a)"))
  end)

  it("is decided for each class of tags that it tells apart, also those that pick does not",
    function()
    local invariant = "return not req.tag:under('secret') or got.name == 'b'"
    local d = refusal("return a", invariant, "plain")
    assert.equal("always", d.class) -- found at the load: the invariant names the tag
    assert.is_nil(refusal("return req.tag:under('secret') and b or a", invariant, "plain"))
  end)

  it("says when no request could be found", function()
    local d = refusal("return req.size % 7919 == 7001 and req.live % 7907 == 6007 and a or b",
      "return got.name ~= 'a'")
    assert.equal("always", d.class)
    assert.matches("could not be proved", d.reason)
  end)

  it("finds a request through arithmetic where there is an easy one", function()
    local d = refusal("if req.size % 4096 == 0 and req.size > 10000 then return a end return b",
      "return got.name ~= 'a'")
    local size = tonumber(d.reason:match("size (%d+)"))
    assert.equal(0, size % 4096)
    assert.is_true(size > 10000)
  end)

  it("fails with its own faults, at its own line", function()
    local d = refusal("if req.zero then return a end return b", "\nreturn req.size < nil")
    assert.equal("type", d.class)
    assert.equal(4, d.line)
    assert.equal("req.zero", d.led[1].condition)
    assert.equal("write", refusal("return a", "x = 1 return true").class)
  end)
end)
