-- query.lua - reads the query of loam_policy_inspect: lines of `key value`.

local core = require("loam.core")
local hex = require("loam.report.hex")
local request = require("loam.symbolic.request")

local query = {}

local STRINGS = { tag = true, file = true, func = true, module = true, batch = true }
local RANGES = { size = { 0, 2 ^ 47 }, align = { 1, 2 ^ 47 }, node = { 0, 63 }, device = { -1, 63 },
                 live = { 0, 2 ^ 52 }, line = { 0, 2 ^ 31 - 1 }, pressure = { 0, 100 } }

local function number(key, text)
  local value, range = tonumber(text), RANGES[key]
  if not value or value ~= math.floor(value) or value < range[1] or value > range[2] then
    return nil, string.format("%s '%s': must be a whole number from %d to %.0f", key, text,
      range[1], range[2])
  end
  if key == "align" and math.frexp(value) ~= 0.5 then
    return nil, "align '" .. text .. "': must be a power of two"
  end
  return key == "align" and math.max(value, request.LEAST_ALIGN) or value
end

-- Reads "NUMBER BYTES", the free memory of a node or a device, into `free`.
local function read_free(key, text, free)
  local at, bytes = string.match(text, "^(%d+) (%d+)$")
  at, bytes = tonumber(at), tonumber(bytes)
  if not at or at > 63 or bytes > 2 ^ 52 then
    return nil, key .. " '" .. text .. "': must be a number from 0 to 63, a blank, and bytes"
  end
  free[at] = bytes
  return true
end

-- Reads one line of a query into `asked`. A line `hex KEY WORD` has a value of any bytes, as a word
-- of report/hex.lua. Returns nil and a message if the line is not valid.
function query.add(asked, key, text)
  if key == "hex" then
    local name, word = string.match(text, "^(%l+) (h%x*)$")
    if not STRINGS[name] then return nil, "hex '" .. text .. "': must be a key and a word" end
    key, text = name, hex.decode(word)
  end
  if STRINGS[key] then
    asked[key] = text
    if key == "tag" then asked.tags[#asked.tags + 1] = text end
  elseif key == "zero" then
    if text ~= "0" and text ~= "1" then return nil, "zero '" .. text .. "': must be 0 or 1" end
    asked.zero = text == "1"
  elseif RANGES[key] then
    local value, message = number(key, text)
    if not value then return nil, message end
    asked[key] = value
  elseif key == "nodefree" or key == "devicefree" then
    return read_free(key, text, asked[key])
  elseif key == "verb" then
    asked.verb = text
  elseif key == "request" then
    asked.requests[#asked.requests + 1] = text
  else
    return nil, "a query has no key '" .. key .. "'"
  end
  return true
end

-- Reads the text of a query.
---@return table|nil asked, string|nil message
function query.parse(text)
  local asked = { tags = {}, requests = {}, zero = false, nodefree = {}, devicefree = {} }
  for line in string.gmatch(text, "[^\n]+") do
    local key, value = string.match(line, "^(%S+) ?(.*)$")
    if not key then return nil, "a query has lines of `key value`, not '" .. line .. "'" end
    local ok, message = query.add(asked, key, value)
    if not ok then return nil, message end
  end
  return asked
end

---@return table the site of a query, with `tag` in place of its own if that is given
function query.where(asked, tag)
  return { tag = tag or asked.tag or "", file = asked.file, func = asked.func,
           module = asked.module }
end

---@return table the request of a query (request.point); nodes have the free memory of this machine,
---unless the query says another
function query.point(asked, size)
  local point = request.point(size)
  for _, key in ipairs { "align", "node", "device", "live", "line", "pressure" } do
    point[key] = asked[key] or point[key]
  end
  point.zero = asked.zero
  point.node_free, point.device_free = {}, asked.devicefree
  for node, bytes in pairs(core.free()) do point.node_free[node] = bytes end
  for node, bytes in pairs(asked.nodefree) do point.node_free[node] = bytes end
  return point
end

return query
