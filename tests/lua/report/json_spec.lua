-- json_spec.lua - JSON text from Lua values and back.

local json = require("loam.report.json")

describe("json.encode", function()
  it("writes keys sorted, the named ones first", function()
    assert.equal('{"z":1,"a":2,"b":3}', json.encode({ a = 2, b = 3, z = 1 }, { "z" }))
  end)

  it("tells arrays from objects, empty ones too", function()
    assert.equal('{"a":[],"b":{},"c":[1,"x",null]}',
      json.encode { a = json.array {}, b = {}, c = { 1, "x", json.null } })
  end)

  it("writes whole numbers as such up to 2^53", function()
    assert.equal("[9007199254740992,-9007199254740992,0.1,1e+300]",
      json.encode { 2 ^ 53, -2 ^ 53, 0.1, 1e300 })
  end)

  it("gives every double back", function()
    for _, n in ipairs { 1 / 3, 2 ^ 60 + 2 ^ 10, 5e-324, -1.7976931348623157e308, 123456.789 } do
      assert.equal(n, json.decode(json.encode(n)))
    end
  end)

  it("writes null where JSON has no number", function()
    assert.equal("[null,null,null]", json.encode { math.huge, -math.huge, 0 / 0 })
  end)

  it("escapes what a terminal or a parser would stumble over", function()
    assert.equal([["a\"b\\c\n\u0000\u001b\u007f"]], json.encode('a"b\\c\n\0\27\127'))
  end)

  it("keeps UTF-8, and shows other bytes as the characters with their numbers", function()
    assert.equal('"é€😀"', json.encode("é€😀"))
    assert.equal('"\\u0080\\u009b\\u009b\194\160"', json.encode("\194\128\194\155\155\194\160"))
    assert.equal('"Ã(í\194\160"', json.encode("\195(\237\160"))
  end)

  it("writes a large value in pieces", function()
    local numbers, pieces = {}, {}
    for i = 1, 5000 do numbers[i] = i end
    json.write(numbers, {}, function(piece) pieces[#pieces + 1] = piece end)
    assert.is_true(#pieces > 5)
    assert.same(numbers, json.decode(table.concat(pieces)))
  end)

  it("writes the items of a function as an array", function()
    local function each(write) for i = 1, 3 do write { n = i } end end
    assert.equal('{"none":[],"rows":[{"n":1},{"n":2},{"n":3}]}',
      json.encode { none = function() end, rows = each })
  end)

  it("refuses what has no JSON form", function()
    assert.has_error(function() json.encode { f = io.stdout } end)
    assert.has_error(function() json.encode { [1.5] = 1 } end)
    local loop = {}
    loop.loop = loop
    assert.has_error(function() json.encode(loop) end)
  end)
end)

describe("json.decode", function()
  it("reads every kind of value", function()
    assert.same({ a = { 1, -250, true, false }, s = "é😀\n/", o = {} },
      json.decode([[ {"a":[1,-2.5e2,true,false],"s":"\u00e9\ud83d\ude00\n\/","o":{},"n":null} ]]))
  end)

  it("keeps null in arrays, where it holds a place", function()
    assert.equal(json.null, json.decode("[1,null,2]")[2])
  end)

  it("tells where the text stops being JSON", function()
    for text, at in pairs { ["{"] = 2, ["[1,]"] = 4, ['{"a" 1}'] = 6, ["nul"] = 1, ["[1] x"] = 5,
                            ['"a'] = 1, [""] = 1, ['"\\q"'] = 2, ['"\\ud8"'] = 2, ["{1:2}"] = 2 } do
      local value, message = json.decode(text)
      assert.is_nil(value)
      assert.equal("not JSON at byte " .. at, message:match("^(.-):"), text)
    end
  end)

  it("does not go deeper than a hundred levels", function()
    local value, message = json.decode(("["):rep(1e5))
    assert.is_nil(value)
    assert.matches("nested too deeply", message)
  end)
end)
