-- shared-frames.lua: pictures and messages that other processes open without a copy.
--
-- For a capture process and its viewers, a parser and its workers: what goes across is in shared
-- memory, each block on pages of its own, and a handle of it (loam_share_get) goes to the others.
-- Everything else stays private. Over the limit, or where no shared memory can be had, a request
-- gets private memory all the same: loam_share_get then says so, and the program may copy.
--
-- Costs: a block takes whole pages of memory and 64 KiB of addresses, however small it is, so small
-- ones are not shared; freed blocks stay in memory while a viewer has them open.

local KiB, MiB = loam.KiB, loam.MiB

local frames  = loam.shared { name = "frames", align = 64, limit = 512 * MiB }
local private = loam.host { name = "private" }

local shared = { frame = true, message = true }

return loam.policy {
  name = "shared-frames",
  pick = function(req)
    if shared[req.tag:part(1)] and req.size >= 4 * KiB then
      return frames:or_else(private)
    end
    return private
  end,
  tests = {
    { tag = "frame.camera", size = 2 * MiB, expect = frames },
    { tag = "message.rows", size = 64 * KiB, expect = frames },
    { tag = "frame.camera", size = 100, expect = private },
    { tag = "", size = 2 * MiB, expect = private },
  },
  always = {
    ["only what is meant for others is shared"] = function(req, got)
      return got.kind ~= "shared" or req.tag:under("frame") or req.tag:under("message")
    end,
  },
}
