-- shape.lua - compares the output that a manual shows with the output of the command.
--
-- Two lines are alike if they differ only in numbers, their units, addresses, hashes and spaces.
-- The shown lines must be among the printed lines, in their order; the manual may leave lines out.
-- "..." at the end of a line, or as a line, stands for any text.
local shape = {}

-- Returns a line with # in place of each number.
function shape.of(line)
  line = line:gsub("/etc/loam/", ""):gsub("/home/ann/try/", ""):gsub("%f[%w]0x%x+", "#")
  line = line:gsub("just now", "1 second ago")
  line = line:gsub("%f[%w]%x+%f[%W]", function(word)
    return #word >= 8 and word:find("%d") and "#" or nil
  end)
  line = line:gsub("%f[%d][%d,]*%.?%d+", "#"):gsub("%f[%d]%d+", "#")
  line = line:gsub("# [KMGT]?i?B%f[%W]", "#"):gsub("(# %l+)s%f[%W]", "%1")
  return (line:gsub("%s+", " "):gsub("^ ", ""):gsub(" $", ""))
end

-- Returns whether a shown line has the shape of a printed line.
function shape.is_alike(shown, printed)
  shown, printed = shape.of(shown), shape.of(printed)
  local first = shown:match("^(.-) ?%.%.%.$")
  if first then return printed:sub(1, #first) == first end
  return shown == printed
end

-- Returns the first shown line that is not among the printed lines, or nil if all are.
function shape.missing(shown, printed)
  local at = 1
  for _, line in ipairs(shown) do
    local found = at
    while printed[found] and not shape.is_alike(line, printed[found]) do found = found + 1 end
    if line ~= "" and line ~= "..." then
      if not printed[found] then return line end
      at = found + 1
    end
  end
  return nil
end

return shape
