-- describe.lua - strategies, tags and chains in words.

local terminal = require("loam.command.terminal")
local units = require("loam.command.units")

local describe = {}

local HIDDEN = { name = true, kind = true, line = true }
local BYTES = { align = true, limit = true, soft = true }

local function number_list(t)
  local list = {}
  for i, value in ipairs(t) do list[i] = tostring(value) end
  return table.concat(list, ",")
end

local function sorted_keys(t)
  local keys = {}
  for key in pairs(t) do keys[#keys + 1] = tostring(key) end
  table.sort(keys)
  return keys
end

local function value_text(key, value)
  if type(value) == "number" then
    return BYTES[key] and units.exact(value) or ("%.14g"):format(value)
  end
  if type(value) ~= "table" then return tostring(value) end
  if #value > 0 then return number_list(value) end
  local out = {}
  for _, name in ipairs(sorted_keys(value)) do
    out[#out + 1] = name .. "=" .. value_text("", value[name])
  end
  return "{" .. table.concat(out, " ") .. "}"
end

-- Returns a strategy in words: "host: align 64, huge thp, numa local".
---@param strategy table as in the JSON answers
function describe.strategy(strategy)
  local out = {}
  for _, key in ipairs(sorted_keys(strategy)) do
    local value = strategy[key]
    if not HIDDEN[key] and value ~= nil then
      out[#out + 1] = value == true and key or key .. " " .. value_text(key, value)
    end
  end
  if #out == 0 then return strategy.kind end
  return terminal.plain(strategy.kind .. ": " .. table.concat(out, ", "))
end

-- Returns a tag safe to show; the empty tag as "" in quotes.
function describe.tag(tag)
  return tag == "" and '""' or terminal.plain(tag)
end

-- Returns the name of a strategy, and its kind where the name does not tell it: "fast (pinned)".
---@param row table with the keys `strategy` and `kind`
function describe.strategy_name(row)
  if row.kind == "host" or row.kind == row.strategy then return row.strategy end
  return ("%s (%s)"):format(row.strategy, row.kind)
end

-- Returns the name of a process and its id: "python3 (42)"; an empty name as "" in quotes.
---@param status table with the keys `program` and `pid`
function describe.program(status)
  return ("%s (%d)"):format(describe.tag(status.program), status.pid)
end

-- Returns the names of a chain in words: "a, else b, else c".
function describe.chain(names)
  return terminal.plain(table.concat(names, ", else "))
end

return describe
