-- units_spec.lua - sizes and counts as people write and read them, and text for a terminal.

local terminal = require("loam.command.terminal")
local units = require("loam.command.units")

describe("units", function()
  it("reads sizes", function()
    for text, bytes in pairs { ["0"] = 0, ["4096"] = 4096, ["64KiB"] = 65536, ["64k"] = 65536,
                               ["1.5 GiB"] = 1.5 * 2 ^ 30, ["2M"] = 2 ^ 21, ["1T"] = 2 ^ 40 } do
      assert.equal(bytes, units.parse(text), text)
    end
    for _, text in ipairs { "", "x", "-1", "1e9", "0x10", "1.5", "nan", "inf", "1KiBB" } do
      assert.is_nil(units.parse(text), text)
    end
  end)

  it("writes sizes, exact ones without loss", function()
    assert.equal("1.5 GiB", units.bytes(1.5 * 2 ^ 30))
    assert.equal("1023 B", units.bytes(1023))
    assert.equal("547 KiB", units.bytes(560000)) -- 546.9 KiB
    assert.equal("100 KiB", units.bytes(99.96 * 2 ^ 10))
    assert.equal("1 MiB", units.bytes(2 ^ 20 - 1))
    assert.equal("4 MiB", units.exact(2 ^ 22))
    assert.equal("4194303", units.exact(2 ^ 22 - 1))
    assert.equal("1,234,567", units.count(1234567))
    assert.equal("123", units.count(123))
  end)
end)

describe("terminal", function()
  it("paints only where it is told to", function()
    assert.equal("x", terminal.painter(false)("red", "x"))
    assert.equal("\27[31mx\27[0m", terminal.painter(true)("red", "x"))
  end)

  it("lets no control character through", function()
    assert.equal("a\\027[31m\\010b", terminal.plain("a\27[31m\nb"))
  end)

  it("cuts the spaces at the end of a line off, whatever spaces are in it", function()
    assert.equal(" a  b", terminal.trimmed(" a  b \t "))
    assert.equal("", terminal.trimmed("   "))
    local long = "a" .. (" "):rep(30000) .. "b"
    local before = os.clock()
    assert.equal(long .. "  c\n", terminal.table { { long, "c", "" } })
    assert.is_true(os.clock() - before < 1)
  end)
end)
