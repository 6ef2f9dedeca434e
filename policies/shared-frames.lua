-- shared-frames.lua: pictures and messages that other processes open without a copy.
--
-- This policy is for a capture process and its viewers, or a parser and its workers. Blocks for
-- other processes are in shared memory, each on pages of its own; the program sends a handle of the
-- block (loam_share_get) to the other process. All other memory stays private. Over the limit, or
-- where the machine has no shared memory, the request gets private memory; loam_share_get then
-- fails, and the program may copy the data.
--
-- Costs: a shared block takes whole pages of memory and 64 KiB of addresses, so small blocks are
-- not shared. A freed block stays in memory while a viewer has it open.

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
