-- lua_spec - names, errors and lifetimes of bindings/lua, in LuaJIT and in Lua 5.4.
local loam = require("loam")

local function live(tag)
  for _, row in ipairs(loam.rows("tag")) do
    if row.tag == tag then return row.live_blocks end
  end
  return 0
end

local function collect()
  collectgarbage()
  collectgarbage()
end

local plain = "local host = loam.host { name = 'host' }\n"
  .. "return loam.policy { name = 'plain', pick = function() return host end }\n"

describe("loam for Lua", function()
  setup(function() assert(loam.start { control = -1 }) end)

  it("is of the library's version", function()
    assert.matches("^%d+%.%d+%.%d+$", loam.version())
    assert.equal(loam.version(), require("loam.native").built)
  end)

  it("names the Luas that it works in, in another Lua", function()
    local path = assert(package.searchpath("loam", package.path))
    local other = setmetatable({ _VERSION = "Lua 5.1", jit = false }, { __index = _G })
    assert.has_error(assert(loadfile(path, "t", other)),
      "loam works in LuaJIT and in Lua 5.4, and this is Lua 5.1")
  end)

  it("refuses a site of a place whose texts are no strings", function()
    assert.has_error(function() loam.site { tag = 5, file = "f" } end)
    assert.has_error(function() loam.site { tag = "t", func = 7 } end)
    assert.has_error(function() loam.site { tag = "t", fil = "f" } end, "site: there is no fil")
    assert.has_error(function() loam.site(nil) end, "site: a table expected, got nil")
  end)

  it("refuses a tag that is no string and no site", function()
    for got, tag in pairs({ number = 5, table = { "t" }, boolean = true }) do
      local words = "tag: a string or a site expected, got " .. got
      assert.has_error(function() loam.block(tag, 10) end, words)
      assert.has_error(function() loam.malloc(tag, 10) end, words)
      assert.has_error(function() loam.array(tag, "int8") end, words)
    end
    assert(loam.block(nil, 10))
    assert(loam.block(loam.site("t"), 10))
  end)

  it("keeps no callback after a wrong argument", function()
    for _ = 1, 2000 do -- LuaJIT can have fewer than a thousand callbacks
      assert.has_error(function() loam.policy.inspect("none.lua", {}) end)
    end
    assert(loam.rows("tag"))
  end)

  it("tells why what fails", function()
    local ok, words = loam.policy.load("/nowhere.lua")
    assert.is_nil(ok)
    assert.matches("nowhere%.lua", words)
    ok, words = loam.start {}
    assert.is_nil(ok)
    assert.matches("started already", words)
    ok, words = loam.malloc("a.tag", 2 ^ 60)
    assert.is_nil(ok)
    assert.matches("address space", words)
    ok, words = loam.owner(loam.null)
    assert.is_nil(ok)
    assert.matches("no live block", words)
    assert.has_error(function() loam.malloc(("x"):rep(300), 1) end)
  end)

  it("raises an error for an argument of another type", function()
    assert.has_error(function() loam.malloc({}, 1) end)
    assert.has_error(function() loam.malloc("of.type", "many") end)
    assert.has_error(function() loam.free("a string") end)
    assert.has_error(function() loam.malloc("of\0type", 1) end, "a tag holds no NUL")
    for _, wrong in ipairs { -1, 1.5, 0 / 0, 1 / 0 } do
      for _, call in ipairs { loam.block, loam.zeroed, loam.malloc } do
        assert.has_error(function() call("of.type", wrong) end,
          ("size %s: a whole number from 0 on is expected"):format(tostring(wrong)))
      end
    end
    assert.has_error(function() loam.malloc("of.type", "10") end,
      "size: a number expected, got string")
    for _, large in ipairs { 2 ^ 63, 2 ^ 64, 1e300 } do
      local words = ("size %s: it must be below 2^63"):format(tostring(large))
      for _, call in ipairs { loam.block, loam.malloc } do
        assert.has_error(function() call("of.type", large) end, words)
      end
      assert.has_error(function() loam.block("of.type", 10):slice(large, 1) end)
      assert.has_error(function() loam.array("of.type", "var * int8"):resize(large) end)
    end
    assert.has_error(function() loam.start { size = 100 } end, "start: there is no size")
    local expected = ": a string expected, got table"
    assert.has_error(function() loam.start { policy = {} } end, "policy" .. expected)
    local _, blamed = pcall(function() loam.start { watch = "x" } end)
    assert.matches("^[^:]*lua_spec.lua:%d+: watch x: true or false is expected$", blamed)
    _, blamed = pcall(function() loam.arena("of.type", { resizable = 0 }) end)
    assert.matches("^[^:]*lua_spec.lua:%d+: resizable 0: true or false is expected$", blamed)
    for _, line in ipairs { "x", 1.5, 2 ^ 31, -1 } do
      _, blamed = pcall(function() loam.site { tag = "of.type", line = line } end)
      assert.matches("^[^:]*lua_spec.lua:%d+: line .*: a whole number from 0 to 2147483647", blamed)
    end
    assert.has_error(function() loam.site { tag = 5 } end, "tag: a string expected, got number")
    local words = " -1: a whole number from 0 to 4294967295 is expected"
    assert.has_error(function() loam.start { max_leaves = -1 } end, "max_leaves" .. words)
    assert.has_error(function() loam.start { step_ms = 2 ^ 32 } end)
    local b, a = loam.block("of.type", 10), loam.array("of.type", "3 * int32")
    assert.has_error(function() b.size(a) end)
    assert.has_error(function() b.size(1) end)
    assert.has_error(function() a.shape(b) end)
    assert.has_error(function() loam.arena("of.type").alloc(b, 1) end)
    b:release()
    a:release()
  end)

  it("refuses a text that C would not read to its end, and what is no text", function()
    local a = loam.array("of.text", "{x: int32}")
    local block = loam.zeroed("of.text", 8)
    local calls = {
      path = loam.policy.load,
      name = function(wrong) return loam.policy.load_text(wrong, plain) end,
      text = function(wrong) return loam.policy.load_text("plain.lua", wrong) end,
      query = function(wrong) return loam.policy.inspect("policies/default.lua", wrong) end,
      datashape = function(wrong) return loam.array("of.text", wrong) end,
      ["field name"] = function(wrong) return a:field(wrong) end,
    }
    for what, call in pairs(calls) do
      assert.has_error(function() call("x\0y") end, ("a %s holds no NUL"):format(what))
      assert.has_error(function() call(5) end, what .. ": a string expected, got number")
      assert.has_error(function() call(nil) end, what .. ": a string expected, got nil")
    end
    assert.has_error(function() loam.policy.watch("x\0y") end, "a path holds no NUL")
    assert.has_error(function() loam.policy.inspect("x\0y", "") end, "a path holds no NUL")
    assert.has_error(function() loam.array_over(block, "x\0y") end, "a datashape holds no NUL")
    assert.has_error(function() loam.start { policy = "x\0y" } end, "a policy holds no NUL")
    assert.has_error(function() loam.site { tag = "x\0y" } end, "a tag holds no NUL")
    assert.has_error(function() loam.malloc("x\0y", 1) end, "a tag holds no NUL")
    a:release()
    block:release()
  end)

  it("loads a policy and says which is live", function()
    assert.is_true(loam.policy.load_text("plain.lua", plain))
    local info = loam.policy.info()
    assert.equal("plain", info.name)
    assert.is_true(info.generation > 0)
    assert.is_false(info.watching)
    assert.matches("^%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x$", info.hash)
    local p = loam.malloc("of.policy", 100)
    local whose = loam.owner(p)
    assert.equal("host", whose.strategy)
    assert.equal("of.policy", whose.tag)
    assert.is_true(whose.base == p)
    assert.is_true(whose.size >= 100 and whose.size == loam.usable_size(p))
    loam.free(p)
  end)

  it("keeps the live policy when another is refused, and names the line", function()
    local ok, words = loam.policy.load_text("wrong.lua", "local x = 1\nreturn x +\n")
    assert.is_nil(ok)
    assert.matches("wrong%.lua:%d", words)
    assert.equal("plain", loam.policy.info().name)
    assert.matches("wrong%.lua", loam.policy.info().last_error)
  end)

  it("answers as the command does", function()
    local answer = assert(loam.policy.inspect("policies/default.lua", "verb check\n"))
    assert.matches('"ok":true', answer)
    local none, words = loam.policy.inspect("/nowhere.lua", "verb check\n")
    assert.is_nil(none)
    assert.matches("nowhere", words)
  end)

  it("names the line that a site is of", function()
    local p = loam.malloc(loam.here("of.line"), 10)
    local whose = loam.owner(p)
    assert.matches("lua_spec", whose.file)
    assert.is_true(whose.line > 0)
    loam.free(p)
  end)

  it("makes a site also where a coroutine begins with it", function()
    local p = loam.malloc(coroutine.wrap(loam.here)("of.begin"), 10)
    assert.equal("of.begin", loam.owner(p).tag)
    loam.free(p)
  end)

  it("leaves a scope also by an error", function()
    local ok, why = pcall(loam.within, "of.scope", function() error("on purpose", 0) end)
    assert.is_false(ok)
    assert.equal("on purpose", why)
    local a, b = loam.within("of.scope", function(x) return x, loam.malloc(nil, x) end, 8)
    assert.equal(8, a)
    assert.equal("of.scope", loam.owner(b).tag)
    loam.free(b)
    local p = loam.malloc(nil, 8)
    assert.equal("", loam.owner(p).tag)
    loam.free(p)
  end)

  it("reads and writes bytes at an address, and resizes", function()
    local p = assert(loam.calloc("of.bytes", 4, 25))
    assert.equal(("\0"):rep(100), loam.read(p, 100))
    loam.write(loam.at(p, 10), "ten\0")
    p = assert(loam.realloc(nil, p, 5000))
    assert.equal("\0ten\0", loam.read(loam.at(p, 9), 5))
    assert.equal("of.bytes", loam.owner(loam.at(p, 4000)).tag)
    loam.free(p)
    for _, wrong in ipairs { -1, 1.5, "x", 2 ^ 64 } do
      assert.has_error(function() loam.read(p, wrong) end)
    end
    assert.has_error(function() loam.read(p) end, "size: a number expected, got nil")
    for _, wrong in ipairs { 1.5, "x", 0 / 0 } do
      assert.has_error(function() loam.at(p, wrong) end)
    end
    assert.has_error(function() loam.at(p) end, "offset nil: a whole number is expected")
    assert.is_true(loam.at(loam.at(p, 10), -10) == p)
    assert.has_error(function() loam.write(p, 5) end, "bytes: a string expected, got number")
    local b = loam.block("of.bytes", 10)
    assert.has_error(function() b:write(5) end, "bytes: a string expected, got number")
    for _, call in ipairs { loam.free, loam.usable_size, loam.owner } do
      assert.has_error(function() call(b) end)
    end
    assert.has_error(function() loam.read(b, 1) end)
    assert.has_error(function() loam.write(b, "x") end)
    assert.has_error(function() loam.at(b, 1) end)
    assert.has_error(function() loam.realloc(nil, b, 1) end)
    assert.has_error(function() loam.wrap("of.bytes", b, 1) end)
    p = assert(loam.aligned_alloc("of.bytes", 4096, 10))
    loam.free(p)
    loam.free(nil)
  end)

  it("refuses what is no address, such as the nil of a malloc that failed", function()
    local b = loam.block("of.address", 10)
    for got, wrong in pairs { string = "text", number = 5, table = {}, ["loam.block"] = b } do
      local calls = { loam.free, loam.usable_size, loam.owner, loam.take,
        function(p) loam.read(p, 1) end, function(p) loam.write(p, "x") end,
        function(p) loam.at(p, 1) end, function(p) loam.realloc(nil, p, 1) end,
        function(p) loam.wrap("of.address", p, 1) end,
        function(p) loam.arena("of.address"):resize(p, 1) end }
      for _, call in ipairs(calls) do
        local _, blamed = pcall(function() call(wrong) return nil end)
        assert.matches("^[^:]*lua_spec.lua:%d+: an address expected, got " .. got .. "$", blamed)
      end
    end
    for _, none in ipairs { false, loam.null } do
      none = none or nil
      assert.has_error(function() loam.read(none, 1) end)
      assert.has_error(function() loam.write(none, "x") end)
      assert.has_error(function() loam.at(none, 1) end)
    end
    assert.has_error(function() loam.free(io.stdout) end)
    assert.has_error(function() loam.malloc(io.stdout, 10) end)
    local _, blamed = pcall(function() loam.malloc(b, 1) return nil end)
    assert.matches("lua_spec.lua:%d+: tag: a string or a site expected, got loam.block$", blamed)
    _, blamed = pcall(function() loam.wrap("t", nil, 1, "free") return nil end)
    assert.matches("lua_spec.lua:%d+: dtor: the address of a C function expected, got string",
      blamed)
    b:release()
  end)

  it("blames the line of the program for a handle that was released, or is none", function()
    local a, b = loam.array("of.blame", "3 * int8"), loam.block("of.blame", 8)
    a:release()
    b:release()
    for _, use in ipairs { function() return (a:at(1)) end, function() return (b:read()) end } do
      local _, blamed = pcall(use)
      assert.matches("^[^:]*lua_spec.lua:%d+: the %l+ was released$", blamed)
    end
    local _, blamed = pcall(function() return (b.read(5)) end)
    assert.matches("^[^:]*lua_spec.lua:%d+: block expected, got number$", blamed)
    _, blamed = pcall(function() return (loam.array_over(a, "int8")) end)
    assert.matches("^[^:]*lua_spec.lua:%d+: block expected, got loam.array$", blamed)
  end)

  it("groups its figures", function()
    collectgarbage() -- so that no handle of an earlier test ends between two looks at the figures
    local p = loam.malloc("of.rows", 100)
    local of_strategy = loam.rows("strategy")
    assert.equal("", of_strategy[1].tag)
    assert.equal(1, live("of.rows"))
    assert.is_true(loam.stats().live_blocks > 0)
    assert.same(loam.rows("tag"), loam.rows("tag", "tag"))
    assert.has_error(function() loam.rows("colour") end)
    loam.free(p)
    assert.equal(0, live("of.rows"))
  end)

  describe("handles", function()
    local native = require("loam.native")

    -- Calls `run` while the function native[name] collects garbage each time before it runs.
    -- Returns how many blocks of the tag "of.kept" lived then.
    local function alive_in(name, run)
      local real, alive = native[name], nil
      native[name] = function(...)
        collect()
        alive = live("of.kept")
        return real(...)
      end
      local ok, message = pcall(run)
      native[name] = real
      assert(ok, message)
      collect()
      return alive
    end

    it("are not collected while C uses them, when nothing else holds them", function()
      local function block() return loam.zeroed("of.kept", 64) end
      local function array() return loam.array("of.kept", "3 * int32") end
      local function arena()
        local made = loam.arena("of.kept")
        made:alloc(8) -- an arena without a piece has no memory of its tag
        return made
      end
      local uses = {
        read = function() assert.equal("\0\0", block():read(0, 2)) end,
        write = function() block():write("a") end,
        block_size = function() assert.equal(64, block():size()) end,
        block_tag = function() assert.equal("of.kept", block():tag()) end,
        block_slice = function() assert.equal(8, block():slice(0, 8):size()) end,
        block_retain = function() assert.equal(64, block():retain():size()) end,
        array_wrap = function() assert(loam.array_over(block(), "2 * int32")) end,
        array_index = function() assert.equal(0, array():get(2)) end,
        array_field = function() assert.is_nil(array():field("none")) end,
        array_json = function() assert.equal("[0,0,0]", array():json()) end,
        array_resize = function() array():resize(1) end,
        arena_alloc = function() assert(arena():alloc(8)) end,
      }
      for name, use in pairs(uses) do assert.equal(1, alive_in(name, use), name) end
      assert.equal(0, live("of.kept"))
    end)
  end)

  describe("blocks", function()
    it("end when they are collected", function()
      local b = assert(loam.block("of.block", 100000))
      assert.equal("owned", b:kind())
      assert.equal(100000, #b)
      b:write(("\7"):rep(#b))
      assert.equal("\7", b:read(99999, 1))
      assert.equal(1, live("of.block"))
      b = nil -- luacheck: ignore
      collect()
      assert.equal(0, live("of.block"))
    end)

    it("end immediately when they are released, and only once", function()
      local b = assert(loam.block("of.block", 10))
      b:release()
      assert.equal(0, live("of.block"))
      b:release()
      assert.has_error(function() b:data() end, "the block was released")
    end)

    it("are read and written within their bounds", function()
      local b = assert(loam.zeroed("of.block", 10))
      b:write("abc", 7)
      assert.equal(("\0"):rep(7) .. "abc", b:read())
      assert.equal("bc", b:read(8))
      assert.equal("", b:read(10))
      for _, wrong in ipairs { { 8, 3 }, { -1, 1 }, { 0, -1 }, { 11, 0 } } do
        assert.has_error(function() b:read(wrong[1], wrong[2]) end)
      end
      assert.has_error(function() b:write("abcd", 7) end, "4 bytes from 7 on: the block has 10")
      local far = 0x7fffffffffffffff -- in Lua 5.4, far + 1 is negative
      assert.has_error(function() b:read(far, 1) end)
      assert.has_error(function() b:read(1, far) end)
      assert.has_error(function() b:write("x", far) end)
      for _, wrong in ipairs { -1, 0.5, 0 / 0 } do
        assert.has_error(function() b:write("x", wrong) end)
        assert.has_error(function() b:read(wrong, 5) end)
        assert.has_error(function() b:slice(wrong, 5) end)
      end
      b:release()
    end)

    it("are not read where they have no memory that Lua can read", function()
      local none = assert(loam.wrap("of.block", nil, 10))
      local words = "block of.block: it has no memory that can be read here"
      assert.has_error(function() none:read() end, words)
      assert.has_error(function() none:write("x") end, words)
      local pieces = assert(loam.arena("of.block"))
      assert(pieces:alloc(10))
      assert.has_error(function() none.read(pieces, 0, 4) end, words)
      local taken = assert(loam.take(pieces:give()))
      assert.has_error(function() taken:read(0, 4) end, words)
    end)

    it("live as long as a slice or another handle does", function()
      local b = assert(loam.zeroed("of.block", 100))
      local part, other = assert(b:slice(10, 20)), b:retain()
      assert.equal(3, b:refcount())
      assert.equal("slice", part:kind())
      assert.equal("of.block", part:tag())
      b:release()
      collect()
      assert.equal("\0", part:read(0, 1))
      other:release()
      assert.equal(1, live("of.block"))
      part = nil -- luacheck: ignore
      collect()
      assert.equal(0, live("of.block"))
    end)

    it("are refused in words", function()
      local b = assert(loam.block("of.block", 10))
      local part, words = b:slice(5, 6)
      assert.is_nil(part)
      assert.equal("a slice of 6 bytes from 5 on: the block has 10", words)
      assert.is_nil((loam.aligned("of.block", 3, 10)))
      b:release()
    end)

    it("wrap memory that outlives them, are given to C and taken from it", function()
      local p = assert(loam.malloc("of.memory", 100))
      local b = assert(loam.wrap("of.block", p, 100))
      assert.equal("external", b:kind())
      assert.is_true(b:data() == p)
      assert.has_error(function() loam.wrap("of.block", p, 100, function() end) end)
      local given = b:give()
      assert.has_error(function() b:size() end)
      b = assert(loam.take(given))
      assert.equal(1, b:refcount())
      b:release()
      loam.free(p)
      assert.is_nil((loam.take(nil)))
      for _, wrong in ipairs { loam.block("of.block", 10), "text", 5, {} } do
        assert.has_error(function() loam.take(wrong) end)
      end
    end)

    it("are counted by kind", function()
      local before = loam.block_stats()
      local b = loam.block("of.block", 10)
      b:release()
      local now = loam.block_stats()
      assert.equal(1, now.made.embedded - before.made.embedded)
      assert.equal(1, now.ended.embedded - before.ended.embedded)
    end)
  end)

  describe("arenas", function()
    it("resize any piece if they are resizable", function()
      local a = assert(loam.arena("of.arena", { resizable = true, zeroed = true }))
      local p, q = assert(a:alloc(10)), assert(a:alloc(10))
      loam.write(p, "first\0")
      p = assert(a:resize(p, 5000))
      assert.equal("first\0", loam.read(p, 6))
      assert.equal("\0", loam.read(loam.at(p, 4999), 1))
      assert.is_true(p ~= q)
      assert.equal(5010, a:size())
      assert.is_true(a:reset())
      assert.equal(0, a:size())
      a:release()
      assert.equal(0, live("of.arena"))
    end)

    it("have no options but theirs", function()
      assert.has_error(function() loam.arena("of.arena", { resizeable = true }) end,
        "arena: there is no resizeable")
      assert.has_error(function() loam.arena("of.arena", true) end,
        "arena: a table expected, got boolean")
    end)

    it("have pieces, and no data of their own", function()
      local a = assert(loam.arena("of.arena"))
      assert(a:alloc(10))
      assert.equal(10, #a)
      assert.has_error(function() a:read() end)
      assert.has_error(function() a:write("x") end)
      local other = assert(a:retain())
      a:release()
      assert(other:alloc(20))
      assert.equal(30, other:size())
      other:release()
      assert.equal(0, live("of.arena"))
    end)

    it("refuse pieces when they are finalized", function()
      local a = assert(loam.arena("of.arena"))
      assert(a:alloc(10, 1))
      assert.is_true(a:finalize())
      local p, words = a:alloc(10)
      assert.is_nil(p)
      assert.matches("finalized", words)
      a = nil -- luacheck: ignore
      collect()
      assert.equal(0, live("of.arena"))
    end)
  end)

  it("leaves nothing behind after a hundred thousand blocks", function()
    for i = 1, 100000 do
      local b = loam.block("of.many", i % 2000 + 1)
      b:write("\1")
    end
    collect()
    assert.equal(0, live("of.many"))
  end)

  -- LuaJIT cannot parse <close>.
  if _VERSION == "Lua 5.4" then
    it("releases variables that are to be closed", function()
      local scope = assert(load([[
        local loam, live = ...
        do
          local b <close> = assert(loam.block("of.close", 10))
          local a <close> = assert(loam.array("of.close", "1000 * int32"))
          assert(live("of.close") > 0)
        end
        return live("of.close")]]))
      assert.equal(0, scope(loam, live))
    end)
  end
end)
