-- spill-to-disk.lua: tables that may be larger than memory, in a file without a name.
--
-- This policy is for sorts, joins and caches that may need more memory than the machine has. Large
-- blocks of tags under "spill" are in memory until the tag has 4 GiB live. After that they are in a
-- file, of which the kernel keeps the used parts in memory. loam takes the room on the disk when it
-- allocates: if the disk is full, the block is ordinary memory, and if there is none left, the
-- request gets NULL.
--
-- Costs: an access to data that is not in memory waits for the disk. Each block takes its room on
-- the disk when it is allocated. `dir` has to be on a disk: `loam check` refuses a folder in memory
-- (tmpfs), and `loam doctor` shows whether /var/tmp can be used.

local MiB, GiB = loam.MiB, loam.GiB

local memory = loam.host { name = "memory" }
local disk   = loam.file { name = "disk", dir = "/var/tmp", align = 64 }

return loam.policy {
  name = "spill-to-disk",
  pick = function(req)
    if req.tag:under("spill") and req.size >= 1 * MiB and req.live > 4 * GiB then
      return disk:or_else(memory)
    end
    return memory
  end,
  tests = {
    { tag = "spill.sort", size = 64 * MiB, live = 5 * GiB, expect = disk },
    { tag = "spill.sort", size = 64 * MiB, live = 1 * GiB, expect = memory },
    { tag = "spill.sort", size = 100, live = 5 * GiB, expect = memory },
    { tag = "request", size = 64 * MiB, expect = memory },
  },
  always = {
    ["small blocks never wait for a disk"] = function(req, got)
      return got.kind ~= "file" or req.size >= 1 * MiB
    end,
  },
}
