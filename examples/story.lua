-- story.lua - large frames have a strategy of their own, aligned for vector instructions.
local frames = loam.host { name = "frames", align = 64 }
local rest = loam.host { name = "rest" }

return loam.policy {
  name = "story",
  pick = function(req)
    if req.tag:under("frame") and req.size >= 4 * loam.KiB then return frames end
    return rest
  end,
  tests = {
    { tag = "frame.pixels", size = 64 * loam.KiB, expect = frames },
    { tag = "frame.title", size = 100, expect = rest },
  },
}
