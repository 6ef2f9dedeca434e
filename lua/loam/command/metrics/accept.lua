-- accept.lua - chooses the format of the page from the HTTP header Accept (RFC 9110, 12.5.1).

local accept = {}

local OPENMETRICS, TEXT = "application/openmetrics-text", "text/plain"

-- The versions of each format that the command writes; "" is a type without a version.
local VERSIONS = {
  [OPENMETRICS] = { ["1.0.0"] = true, ["0.0.1"] = true, [""] = true },
  [TEXT] = { ["0.0.4"] = true, [""] = true },
}

-- Returns the quality of an element of the header, from 0 to 1, its type and the version it names.
local function read_element(element)
  local kind = element:match("^%s*([^;%s]+)") or ""
  local quality = tonumber(element:match(";%s*[qQ]%s*=%s*([%d.]+)") or "1") or 0
  local version = element:match(';%s*[vV]ersion%s*=%s*"?([^;"%s]*)') or ""
  return math.min(quality, 1), kind:lower(), version
end

-- Returns "openmetrics" if the client prefers it, else "text": also for a client that accepts
-- anything, or nothing that the command writes.
---@param header string|nil
---@return "openmetrics"|"text"
function accept.format(header)
  local best = { [OPENMETRICS] = 0, [TEXT] = 0 }
  for element in (header or ""):gmatch("[^,]+") do
    local quality, kind, version = read_element(element)
    local is_ours = VERSIONS[kind] and VERSIONS[kind][version]
    if is_ours then best[kind] = math.max(best[kind], quality) end
  end
  return best[OPENMETRICS] > 0 and best[OPENMETRICS] >= best[TEXT] and "openmetrics" or "text"
end

return accept
