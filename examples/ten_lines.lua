-- ten_lines.lua - tensors of 4 MiB and more have a strategy of their own.
local scratch = loam.host { name = "scratch", align = 64 }
local tensors = loam.host { name = "tensors", align = 64, huge = "thp" }

return loam.policy {
  name = "ten-lines",
  pick = function(req)
    if req.tag:under("tensor") and req.size >= 4 * loam.MiB then return tensors:or_else(scratch) end
    return scratch
  end,
  tests = {
    { tag = "tensor.weights", size = 8 * loam.MiB, expect = tensors },
    { tag = "log", size = 100, expect = scratch },
  },
}
