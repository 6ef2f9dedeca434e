-- confirm.lua - has both policies explain each witness before it is shown.

local hex = require("loam.report.hex")

local confirm = {}

-- Makes the value of a line `request` of the query `confirm` for a witness.
local function request_of(dims, region)
  local where, words = region.sites[1], {}
  for i, field in ipairs { "tag", "file", "func", "module" } do
    words[i] = hex.encode(where[field])
  end
  for _, dim in ipairs(dims.list) do
    if dim.field then words[#words + 1] = ("%s=%.17g"):format(dim.field, region.point[dim]) end
  end
  return table.concat(words, " ")
end

---@return string[] lines of a query about the witnesses of all regions of a loam.Comparison
function confirm.requests(made)
  local lines = {}
  for i, region in ipairs(made.regions) do lines[i] = request_of(made.dims, region) end
  return lines
end

local function expected(chain)
  local words = { "chain" }
  for _, member in ipairs(chain) do
    words[#words + 1] = hex.encode(member.name)
    words[#words + 1] = hex.encode(member.described)
  end
  return table.concat(words, " ")
end

-- Compares the answer about confirm.requests with the chains of the regions. Returns nil if all
-- are confirmed; otherwise the first region that is not, and the reason.
---@param side "old"|"new"
function confirm.check(made, side, answer)
  local n = 0
  for line in answer:gmatch("[^\n]+") do
    n = n + 1
    local region = made.regions[n]
    if not region then return made.regions[1], "there is an answer too many" end
    local reason = line:match("^failed (%w+)$")
    if reason then return region, hex.decode(reason) end
    if line ~= expected(region[side]) then
      return region, "explain has another strategy for its witness"
    end
  end
  if n < #made.regions then return made.regions[n + 1], "explain has no answer for its witness" end
  return nil
end

return confirm
