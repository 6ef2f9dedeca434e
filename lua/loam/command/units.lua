-- units.lua - bytes, counts and times as people write and read them.

local units = {}

local KiB, MiB, GiB, TiB = 2 ^ 10, 2 ^ 20, 2 ^ 30, 2 ^ 40

local SUFFIX = {
  [""] = 1, b = 1, k = KiB, kb = KiB, kib = KiB, m = MiB, mb = MiB, mib = MiB,
  g = GiB, gb = GiB, gib = GiB, t = TiB, tb = TiB, tib = TiB,
}

-- Reads a size such as "4096", "64KiB" or "1.5 G". Every unit counts in powers of 1024: 4K, 4KB and
-- 4KiB are 4096 bytes.
---@return number|nil bytes; nil: it is not a size, or no whole number of bytes
---@return number|nil bytes that are no whole number
function units.parse(text)
  local digits, suffix = text:match("^%s*(%d+%.?%d*)%s*(%a*)%s*$")
  local scale = digits and SUFFIX[suffix:lower()]
  if not scale then return nil end
  local bytes = tonumber(digits) * scale
  if bytes == math.floor(bytes) then return bytes end
  return nil, bytes
end

local MS = { ms = 1, s = 1000, [""] = 1000, m = 60000, min = 60000, h = 3600000 }

-- Reads a time such as "60s", "500ms", "2m" or "1h". A number without a unit counts seconds.
---@return number|nil milliseconds, a whole number; nil: it is not a time
function units.parse_time(text)
  local digits, unit = text:match("^(%d+%.?%d*)(%a*)$")
  local scale = digits and MS[unit]
  return scale and math.floor(tonumber(digits) * scale) or nil
end

local SCALES = { { TiB, "TiB" }, { GiB, "GiB" }, { MiB, "MiB" }, { KiB, "KiB" } }

-- Returns a size in words, rounded to about three digits: "4 MiB", "1.5 GiB", "100 B".
function units.bytes(n)
  if n < KiB then return ("%d B"):format(n) end
  for _, scale in ipairs(SCALES) do
    local value = n / scale[1]
    if value >= 1023.5 / 1024 then
      local text = (value < 99.95 and "%.1f" or "%.0f"):format(value)
      return text:gsub("%.0$", "") .. " " .. scale[2]
    end
  end
end

-- Returns a size in words, exactly: "4 MiB", "4194303".
function units.exact(n)
  for _, scale in ipairs(SCALES) do
    if n >= scale[1] and n % scale[1] == 0 then return ("%d %s"):format(n / scale[1], scale[2]) end
  end
  return ("%d"):format(n)
end

-- Returns a count with its digits in groups of three: "1,234,567".
function units.count(n)
  local text = ("%d"):format(n)
  return (text:reverse():gsub("(%d%d%d)", "%1,"):gsub(",$", ""):reverse())
end

-- Returns a count with its noun: "1 leaf", "3 leaves". A verb may follow the noun in `one` and
-- `many`: "1 leaf is", "3 leaves are".
function units.plural(n, one, many)
  return units.count(n) .. " " .. (n == 1 and one or many or one .. "s")
end

local AGES = { { 86400, "day" }, { 3600, "hour" }, { 60, "minute" }, { 1, "second" } }

-- Returns the time since `ns` in words. `ns` is a Unix time in nanoseconds, `now` one in seconds.
function units.ago(ns, now)
  local seconds = math.max(0, now - ns / 1e9)
  for _, age in ipairs(AGES) do
    if seconds >= age[1] then
      return units.plural(math.floor(seconds / age[1]), age[2]) .. " ago"
    end
  end
  return "just now"
end

return units
