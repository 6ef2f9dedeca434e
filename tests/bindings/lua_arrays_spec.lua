-- lua_arrays_spec - the arrays of bindings/lua, in LuaJIT and in Lua 5.4.
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

describe("arrays of loam for Lua", function()
  setup(function() assert(loam.start { control = -1 }) end)

  it("have rows of different lengths, and structs", function()
    local rows = assert(loam.array("of.array", "3 * var * {x: float64, y: ?int32}"))
    assert.equal("3 * var * {x: float64, y: ?int32}", rows:type())
    assert.same({ 3 }, rows:shape())
    assert.equal(3, #rows)
    local row = assert(rows:at(2))
    assert.equal(0, #row)
    assert.is_true(row:resize(2))
    assert.equal(2, #row)
    local x, y = assert(row:field("x")), assert(row:field("y"))
    assert.is_true(x:set(0.5, 1))
    assert.is_true(y:set(7, -1))
    assert.is_true(y:set(nil, 1))
    assert.equal(0.5, x:get(1))
    assert.equal(7, y:get(2))
    assert.is_nil((y:get(1)))
    assert.equal('[[],[{"x":0.5,"y":null},{"x":0,"y":7}],[]]', (rows:json():gsub("%s", "")))
    assert.is_true(rows:bytes() > 0)
    assert.matches("var", rows:repr())
    local maybe = assert(loam.array("of.array", "?var * int32"))
    assert(maybe:resize(1))
    assert(assert(maybe:follow()):resize(3))
    assert.equal(3, #maybe)
    assert(maybe:set(nil))
    assert.equal(0, #maybe)
    assert.equal(0, #assert(loam.array("of.array", "int32")))
  end)

  it("keep their data alive by views, until all of them are collected", function()
    local function last_row()
      local all = assert(loam.array("of.view", "2 * 1000 * float64"))
      return assert(all:at(2))
    end
    local row = last_row()
    assert.is_true(row:set(2.5, 1000))
    collect()
    assert.equal(2.5, row:get(-1))
    assert.is_true(live("of.view") > 0)
    row = nil -- luacheck: ignore
    collect()
    assert.equal(0, live("of.view"))
  end)

  it("count elements from 1, and ranges with both ends", function()
    local a = assert(loam.array("of.array", "5 * int32"))
    for i = 1, 5 do a:set(10 * i, i) end
    assert.equal("[20,30,40]", (assert(a:at({ 2, 4 })):json():gsub("%s", "")))
    assert.equal("[40,50]", (assert(a:at({ -2 })):json():gsub("%s", "")))
    assert.equal("[10,20,30,40]", (assert(a:at({ 1, -2 })):json():gsub("%s", "")))
    assert.equal("[10,30,50]", (assert(a:at({ 1, -1, 2 })):json():gsub("%s", "")))
    assert.equal("[10,20,30,40,50]", (assert(a:at({})):json():gsub("%s", "")))
    assert.has_error(function() a:at(0) end)
    for _, wrong in ipairs { "2", true, 1.5, 0 / 0, 2 ^ 64, -2 ^ 63, { 1.5 }, { 1, 2, 0 },
      { 1, 2, 0 / 0 }, { -2 ^ 63 }, { 1, 1e300 }, { first = 1 }, { 1, 2, 1, 1 } } do
      assert.has_error(function() a:at(wrong) end)
      assert.has_error(function() a:get(wrong) end)
    end
    assert.has_error(function() a:at(nil) end)
    for index, given in pairs { [6] = "6", [-6] = "-6" } do
      for _, call in ipairs { a.at, a.get, function(of, i) return of:set(1, i) end } do
        local none, words = call(a, index)
        assert.is_nil(none)
        assert.equal(("index 1 is %s: there are 5 elements"):format(given), words)
      end
    end
    local rows = assert(loam.array("of.array", "2 * var * int32"))
    assert(rows:at(2)):resize(3)
    local none, words = rows:at({}, { 2 })
    assert.is_nil(none)
    assert.matches("other elements of row 2, which has 3, than of row 1, which has 0", words)
  end)

  it("hold numbers of their type, and no others", function()
    local kinds = { bool = true, int8 = -128, int16 = -2, int32 = -3, int64 = -4, uint8 = 255,
      uint16 = 65535, uint32 = 4294967295, uint64 = 5, float32 = 0.25, float64 = 1e300 }
    for kind, value in pairs(kinds) do
      local a = assert(loam.array("of.array", kind))
      assert.is_true(a:set(value))
      assert.equal(value, a:get())
      assert.has_error(function() a:set({}) end)
    end
    local small = assert(loam.array("of.array", "uint8"))
    for _, wrong in ipairs { 256, -1, 1.5, true } do
      assert.has_error(function() small:set(wrong) end)
    end
    assert.is_nil((small:set("text")))
    local large = assert(loam.array("of.array", "uint64"))
    for _, value in ipairs { 2 ^ 63, 2 ^ 64 - 2 ^ 11 } do
      assert.is_true(large:set(value))
      assert.equal(value, large:get())
      assert.equal(("%.0f"):format(value), large:json())
    end
    assert.has_error(function() large:set(2 ^ 64) end)
    if _VERSION == "Lua 5.4" then
      local most = 0x7fffffffffffffff -- as a float it would be 2^63
      assert.is_true(large:set(most))
      assert.equal(most, large:get())
    end
    local single = assert(loam.array("of.array", "float32"))
    for _, value in ipairs { 2 ^ 128 - 2 ^ 104, -2 ^ 127, 1 / 0, -1 / 0 } do
      assert.is_true(single:set(value))
      assert.equal(value, single:get())
    end
    for _, wrong in ipairs { 2 ^ 128 - 2 ^ 103, 1e300, -1e300 } do
      assert.has_error(function() single:set(wrong) end)
    end
    local none, words = assert(loam.array("of.array", "complex128")):get()
    assert.is_nil(none)
    assert.matches("complex128", words)
  end)

  it("give one result, which table.insert takes", function()
    local a, list = assert(loam.array("of.array", "3 * int8")), {}
    a:set(7, 2)
    for i = 1, 3 do table.insert(list, a:get(i)) end
    assert.same({ 0, 7, 0 }, list)
    assert.equal(1, select("#", a:set(1, 1)))
    assert.equal(2, select("#", a:get(4)))
    a:release()
  end)

  it("are not indexed as tables are, which gives an error and no nil", function()
    local a = assert(loam.array("of.array", "3 * int8"))
    assert.has_error(function() return a[1] end)
    assert.has_error(function() a[1] = 5 end)
    assert.has_error(function() return a.none end)
    assert.has_error(function() for _ in ipairs(a) do live("") end end)
    a:release()
  end)

  it("blame the line of the program for a wrong use", function()
    local a = assert(loam.array("of.array", "3 * int8"))
    local _, blamed = pcall(function() a:set(1.5, 1) end)
    assert.matches("^[^:]*lua_arrays_spec.lua:%d+: 1.5 is no value of int8$", blamed)
    a:release()
    for _, use in ipairs { function() return (a:get(1)) end, function() a:set(1, 1) end } do
      _, blamed = pcall(use)
      assert.matches("^[^:]*lua_arrays_spec.lua:%d+: the array was released$", blamed)
    end
  end)

  it("hold categories by their names", function()
    local a = assert(loam.array("of.array", "3 * ?categorical[['low', 'mid \"1\"', 'Größe']]"))
    for _, name in ipairs { "low", 'mid "1"', "Größe" } do
      assert.is_true(a:set(name, 2))
      assert.equal(name, a:get(2))
    end
    assert.is_true(a:set(nil, 2))
    assert.is_nil((a:get(2)))
    local codes = assert(loam.zeroed("of.block", 2))
    codes:write("\7")
    local unknown = assert(loam.array_over(codes, "2 * categorical[['low', 'high']]"))
    assert.equal("low", unknown:get(2))
    local none, words = unknown:get(1)
    assert.is_nil(none)
    assert.equal("category 7: the categorical has 2", words)
    local names = {}
    for i = 1, 300 do names[i] = ("'n%d'"):format(i) end
    local many = assert(loam.array("of.array", "categorical[[" .. table.concat(names, ",") .. "]]"))
    assert.is_true(many:set("n300"))
    assert.equal("n300", many:get())
  end)

  it("give text as often as it is asked for", function()
    local a = assert(loam.array("of.array", "string"))
    assert(a:set("often"))
    for _ = 1, 70000 do -- LuaJIT can have fewer than 65536 types
      if a:get() ~= "often" then error("another text") end
    end
  end)

  it("hold text", function()
    local a = assert(loam.array("of.array", "2 * string"))
    assert.is_true(a:set("Grüße\0!", 2))
    assert.equal("Grüße\0!", a:get(2))
    assert.equal("", a:get(1))
    assert.has_error(function() a:set(5, 1) end, "5 is no value of string")
    for _, kind in ipairs { "string[8]", "?string[8]", "string[8, 'utf8']" } do
      local fixed = assert(loam.array("of.array", "2 * " .. kind))
      for _, text in ipairs { "", "Grüße", "Grüß\0!" } do
        assert.is_true(fixed:set(text, 2))
        assert.equal(text, fixed:get(2))
      end
    end
  end)

  it("are refused in words", function()
    local none, words = loam.array("of.array", "3 * flot64")
    assert.is_nil(none)
    assert.matches("flot64", words)
    local a = assert(loam.array("of.array", "3 * int32"))
    none, words = a:field("x")
    assert.is_nil(none)
    assert.is_string(words)
    local still = assert(a:readonly())
    none, words = still:set(1, 1)
    assert.is_nil(none)
    assert.matches("read%-only", words)
    a:release()
    assert.has_error(function() a:shape() end, "the array was released")
    assert.equal(0, still:get(1))
  end)

  it("show the data of a block, and are transposed", function()
    local b = assert(loam.zeroed("of.block", 24))
    local a = assert(loam.array_over(b, "2 * 3 * int32"))
    assert.is_true(a:set(7, 2, 1))
    assert.equal(7, assert(a:transpose()):get(1, 2))
    assert.equal("\7\0\0\0", b:read(12, 4))
    assert.is_nil((loam.array_over(b, "7 * int32")))
    b:release()
    assert.equal(7, a:get(2, 1))
  end)
end)
