-- luajit_spec - what bindings/lua offers in LuaJIT only: pointers with types, and loam.C.
local ffi = require("ffi")
local loam = require("loam")

ffi.cdef("void *malloc(size_t size); void free(void *p, size_t n, void *ctx);")

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
end)
