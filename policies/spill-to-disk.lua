-- spill-to-disk.lua: tables larger than memory, in a file that nobody sees.
--
-- For sorts, joins and caches that may outgrow the machine: large blocks of the tags below `spill`
-- are in memory as long as 4 GiB suffice, and beyond in a file without a name, of which the kernel
-- keeps in memory what is used. A full disk is known when a block is asked for: that one is private
-- memory again then, and if there is none of that, NULL.
--
-- Costs: a touch of what is not in memory waits for the disk; each block takes its room on the disk
-- at once. The folder has to be on a disk: `loam check` refuses one that is in memory (tmpfs), and
-- `loam doctor` tells of /var/tmp.

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
