-- guard-suspects.lua: guard pages around the blocks of code that may overflow them.
--
-- Each block of a suspect tag ends at a page that cannot be accessed, and after its free the block
-- cannot be accessed for a while. An overflow or a use after free stops the program at the
-- instruction, and a message says whose block it was. Of all other blocks one in a thousand is
-- guarded, which is cheap enough for production. Blocks of more than 256 KiB are not guarded. To
-- narrow the search, edit `suspects` while the program runs.
--
-- Costs: two system calls and at least a page of memory for each guarded block. Use it for tags
-- with thousands of live blocks, not millions (the kernel's vm.max_map_count is 65,530).

local KiB = loam.KiB

local guarded = loam.host { name = "guarded", guard = true }
local sampled = loam.host { name = "sampled", guard = 1000 }
local plain   = loam.host { name = "plain" }

local suspects = { "parser", "malloc.libxml2", "image.decode" }

local function is_suspect(tag)
  for _, name in ipairs(suspects) do
    if tag:under(name) then return true end
  end
  return false
end

return loam.policy {
  name = "guard-suspects",
  pick = function(req)
    if req.size > 256 * KiB then return plain end
    if is_suspect(req.tag) then return guarded:or_else(plain) end
    return sampled:or_else(plain)
  end,
  tests = {
    { tag = "parser.json", size = 100,       expect = guarded },
    { tag = "parsers",     size = 100,       expect = sampled },
    { tag = "parser.json", size = 512 * KiB, expect = plain },
  },
  always = {
    ["large blocks are not guarded"] = function(req, got)
      return not got.guard or req.size <= 256 * KiB
    end,
  },
}
