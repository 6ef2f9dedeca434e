-- numpy-huge-pages.lua: NumPy's large arrays on transparent huge pages, aligned for SIMD.
--
-- This policy is for numerical Python under `loam run`. The first touch of a large array takes one
-- page fault for 2 MiB in place of one for 4 KiB, and random reads miss the TLB less often. The
-- policy recognises arrays, and the packing buffers of BLAS, by the module that allocates them.
--
-- Costs: up to 2 MiB more resident memory for each array of 4 MiB or more. It needs `madvise` or
-- `always` in /sys/kernel/mm/transparent_hugepage/enabled.

local MiB = loam.MiB

local arrays  = loam.host { name = "arrays", align = 64, huge = "thp" }
local vectors = loam.host { name = "vectors", align = 64 }
local plain   = loam.host { name = "plain" }

local function from_numpy(tag)
  return tag:under("malloc._multiarray_umath") or tag:under("numpy")
end

return loam.policy {
  name = "numpy-huge-pages",
  pick = function(req)
    if from_numpy(req.tag) or req.tag:glob("malloc.libopenblas*") then
      if req.size >= 4 * MiB then return arrays:or_else(plain) end
      if req.size >= 1024 then return vectors end
    end
    return plain
  end,
  tests = {
    { tag = "malloc._multiarray_umath", size = 4 * MiB,     expect = arrays },
    { tag = "malloc._multiarray_umath", size = 4 * MiB - 1, expect = vectors },
    { tag = "numpy.data",               size = 80,          expect = plain },
    { tag = "malloc.python3",           size = 64 * MiB,    expect = plain },
  },
  always = {
    ["huge pages are for large blocks only"] = function(req, got)
      return got.huge ~= "thp" or req.size >= 2 * MiB
    end,
  },
}
