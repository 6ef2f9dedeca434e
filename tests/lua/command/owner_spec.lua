-- owner_spec.lua - `loam owner` prints the owners of addresses, one in each line.

local run = require("canned_context").run

-- Runs the command for one address. Returns the exit status, the line and the context.
local function line_of(found, arguments)
  found.address = "0x7f10"
  local answers = { owners = { [42] = { pid = 42, addresses = { found } } } }
  local status, context = run("owner 42 7f10" .. (arguments or ""), answers)
  return status, context.out, context
end

local BLOCK = { memory = "small", tag = "malloc.x", strategy = "plain", kind = "host", size = 4096,
                start = "0x7f00", offset = 16 }

local function block(state, changes)
  local found = { state = state }
  for key, value in pairs(BLOCK) do found[key] = value end
  for key, value in pairs(changes or {}) do found[key] = value end
  return found
end

describe("loam owner", function()
  it("names the block of an address", function()
    local status, line = line_of(block("live", { node = 1, huge = "all" }))
    assert.equal(0, status)
    assert.equal("0x7f10: live: tag malloc.x, strategy plain: offset 16 of 4,096 bytes at 0x7f00, "
      .. "node 1, on huge pages\n", line)
    line = select(2, line_of(block("live", { file = "a.c", line = 7, func = "f" })))
    assert.matches("strategy plain (a.c:7, f): offset", line, 1, true)
  end)

  it("tells what an address is that is in no live block", function()
    local LINES = {
      [block("cached")] = "freed, kept for reuse: was tag malloc.x, strategy plain: offset 16 of "
        .. "4,096 bytes at 0x7f00",
      [block("free")] = "freed: was tag malloc.x, strategy plain: offset 16 of",
      [block("quarantine")] = "freed, in quarantine: was tag malloc.x",
      [block("guard", { offset = 4100 })] = "guard: tag malloc.x, strategy plain: 4 bytes behind "
        .. "4,096 bytes at 0x7f00",
      [block("guard", { offset = -1 })] = "1 byte before 4,096 bytes at 0x7f00",
      [{ state = "metadata" }] = "loam's own tables",
      [{ state = "region" }] = "but in no block",
      [{ state = "changing" }] = "that loam was changing",
      [{ state = "stack", thread = 43 }] = "the stack of thread 43",
      [{ state = "mapping", mapping = { name = "/lib/x.so", access = "r-xp", file_offset = 16 } }]
        = "not loam's: /lib/x.so, offset 0x10, r-xp",
      [{ state = "mapping", mapping = { name = "", access = "rw-p" } }]
        = "not loam's: memory that the program mapped itself, rw-p",
      [{ state = "unmapped" }] = "not mapped",
    }
    for found, words in pairs(LINES) do
      local status, line = line_of(found)
      assert.equal(1, status)
      assert.matches(words, line, 1, true)
    end
    local free = block("free")
    free.tag = nil
    assert.matches("free, no block was there", select(2, line_of(free)), 1, true)
  end)

  it("shows no control characters of the program", function()
    local line = select(2, line_of(block("live", { tag = "a\27[2Jb", file = "\27c" })))
    assert.matches("a\\027[2Jb", line, 1, true)
    assert.is_nil(line:find("\27", 1, true))
  end)

  it("answers in JSON", function()
    local status, text = line_of(block("live"), " --json")
    assert.equal(0, status)
    assert.matches('{"verb":"owner","version":1,"ok":true,', text, 1, true)
    status, text = line_of({ state = "unmapped" }, " --json")
    assert.equal(1, status)
    assert.matches('{"verb":"owner","version":1,"ok":false,', text, 1, true)
    assert.matches('"state":"unmapped"', text, 1, true)
  end)

  it("reads addresses with and without 0x", function()
    local _, context = run("owner 42 0x7F10 00ff 0 0Xa", { owners = { [42] = { addresses = {} } } })
    assert.same({ "7F10", "ff", "0", "a" }, context.looked_up)
  end)

  it("refuses what is no address and no process", function()
    for _, wrong in ipairs { "42 7g10", "42 0x", "42 12345678901234567", "x 7f10", "42" } do
      local status, context = run("owner " .. wrong, {})
      assert.equal(2, status)
      assert.equal(2, select(2, context.err:gsub("\n", "")))
    end
    assert.matches("ADDRESS is missing", select(2, run("owner 42", {})).err, 1, true)
    local status, context = run("owner 42 7f10", {})
    assert.equal(1, status)
    assert.equal("loam: process 42 cannot be read\n", context.err)
  end)
end)
