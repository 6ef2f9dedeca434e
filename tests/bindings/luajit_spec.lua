-- luajit_spec - the parts of bindings/lua that only LuaJIT has: pointers with types, and loam.C.
local ffi = require("ffi")
local loam = require("loam")

ffi.cdef("void *malloc(size_t size); void free(void *p, size_t n, void *ctx);")

-- Runs a Lua program in another process, and returns its output.
local function run(text, environment)
  local file = os.tmpname()
  local out = assert(io.open(file, "w"))
  out:write(("package.path = %q\n"):format(package.path), text)
  out:close()
  local command = ("%s $(readlink /proc/$PPID/exe) %s 2>&1"):format(environment or "", file)
  local answer = assert(io.popen(command))
  local words = answer:read("*a")
  answer:close()
  os.remove(file)
  return words
end

describe("loam for LuaJIT", function()
  setup(function() assert(loam.start { control = -1 }) end)

  it("has pointers with types", function()
    local b = assert(loam.block("of.block", 100000))
    ffi.fill(b:data(), #b, 7)
    assert.equal(7, b:data("char *")[99999])
    b:release()
  end)

  it("wraps memory that C ends", function()
    local p = ffi.C.malloc(100)
    local b = assert(loam.wrap("of.block", p, 100, ffi.cast("loam_block_dtor", ffi.C.free)))
    assert.equal("external", b:kind())
    assert.is_true(b:data() == p)
    b:release()
  end)

  it("gives blocks to the library's functions and takes them", function()
    local nrt = loam.C.loam_nrt_api()
    local b = assert(loam.take(nrt.allocate(50)))
    assert.equal(50, b:size())
    local given = b:give()
    assert.has_error(function() b:size() end)
    assert.equal(1, tonumber(loam.C.loam_block_refcount(given)))
    nrt.release(given)
  end)

  -- In another process, because busted allows FFI declarations to be repeated.
  it("is loaded again where a program has dropped the module", function()
    local text = [[
      local loam = require("loam")
      local old = assert(loam.array("of.again", "2 * int8"))
      package.loaded["loam"] = nil
      assert(require("loam").array("of.again", "2 * int8"):json() == old:json())
      for name in pairs(package.loaded) do
        if name:match("^loam") then package.loaded[name] = nil end
      end
      local again = require("loam")
      assert(again ~= loam and #assert(again.block("of.again", 10)) == 10)
      assert(again.array("of.again", "2 * int8"):json() == old:json())
      print(again.array_over(again.zeroed("of.again", 20), "20 * int8"):bytes())]]
    assert.equal("20\n", run(text))
  end)

  it("is loaded where a program has declared loam.h itself", function()
    local text = [[
      require("ffi").cdef(require("loam.cdef"))
      print(#assert(require("loam").block("of.own", 10)))]]
    assert.equal("10\n", run(text))
  end)

  it("uses the engine of the preload library, where that serves malloc", function()
    if (os.getenv("LOAM_SANITIZE") or "") ~= "" then return pending("no library is preloaded") end
    local build = package.path:match("([^;]*)/luajit/%?%.lua")
    local words = run([[
      local loam, ffi = require("loam"), require("ffi")
      ffi.cdef("void *malloc(size_t size);")
      print(loam.start {})
      print(loam.owner(ffi.C.malloc(100)).tag)]], "LD_PRELOAD=" .. build .. "/libloam-preload.so")
    assert.matches("^nil\tloam is started already\nmalloc%.luajit[%w_-]*\n$", words)
  end)
end)
