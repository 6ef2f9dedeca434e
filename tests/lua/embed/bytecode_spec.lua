-- bytecode_spec.lua - the bytecode of the modules that the build embeds.

package.path = "cmake/?.lua;" .. package.path
local bytecode = require("bytecode")

local CHUNK = [[
local ffi = require("ffi")
local function outer(x)
  local function inner(y) return x + y + 0x1p40, 7LL, 8ULL, 3i, "a constant" end
  return inner
end
local words = { alpha = 1, beta = -2, gamma = 2.5, delta = "text", epsilon = true, zeta = false,
                [1.5] = "half", [-3] = "negative", [true] = "yes", 10, 20, nil, 40 }
local a, b, c, d, e = outer(1)(2)
return { words, a, ffi.typeof(b) == ffi.typeof("int64_t"), c == 8ULL, d.im, e }
]]

-- Runs a dump and returns its result.
local function result_of(dump) return assert(loadstring(dump, "=chunk"))() end

describe("the bytecode of an embedded module", function()
  it("means what it meant before its tables were sorted", function()
    for _, is_stripped in ipairs { true, false } do
      local dump = string.dump(assert(loadstring(CHUNK, "=chunk")), is_stripped)
      local sorted = bytecode.sorted(dump)
      assert.equal(#dump, #sorted)
      assert.same(result_of(dump), result_of(sorted))
      assert.equal(sorted, bytecode.sorted(sorted))
    end
    assert.equal("return 1", bytecode.sorted("return 1"))
  end)

  it("is equal in each build", function()
    local words = {}
    for i = 1, 40 do words[i] = ("word%d = %d"):format(i, i) end
    local module, output = os.tmpname(), os.tmpname()
    local function text_of(path)
      local file = assert(io.open(path))
      local text = file:read("*a")
      file:close()
      return text
    end
    local file = assert(io.open(module .. ".lua", "w"))
    file:write("return { ", table.concat(words, ", "), " }, function() return { ",
      table.concat(words, ", "), " } end\n")
    file:close()
    for _, verb in ipairs { "stripped", "modules" } do
      local first
      for _ = 1, 4 do
        local command = ("'%s' cmake/embed.lua %s '%s' modules m='%s.lua'"):format(
          os.getenv("LUAJIT") or "luajit", verb, output, module)
        assert.equal(0, os.execute(command))
        first = first or text_of(output)
        assert.is_true(first == text_of(output))
      end
    end
    for _, path in ipairs { module, module .. ".lua", output } do os.remove(path) end
  end)
end)
