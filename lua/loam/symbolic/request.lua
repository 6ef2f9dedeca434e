-- request.lua - `req` and the gauges: symbols while tracing, numbers in plain Lua.
--
-- A policy sees one `req` object in both cases, and nothing that it may do shows the difference.

local condition = require("loam.symbolic.condition")
local frame = require("loam.report.frame")
local site = require("loam.symbolic.site")
local symbol = require("loam.symbolic.symbol")

local request = {}

local SIZES = 2 ^ 47 -- the largest size that a plan decides; core's LM_SIZE_MAX
local BYTES = 2 ^ 52 -- more than a gauge of bytes can reach
local LINES = 2 ^ 31 - 1 -- the greatest line of a site

-- Every block has this alignment, so a caller who asks for less makes the same request as a caller
-- who asks for none.
request.LEAST_ALIGN = 16

-- The numbers of plan.h's LM_IN_*.
local INPUT = {
  size = 0, align = 1, zero = 2, node = 3, device = 4, live = 5, node_free = 6, device_free = 7,
  line = 8, pressure = 9,
}

local symbols = {
  size = symbol.input("req.size", INPUT.size, 0, 0, SIZES),
  align = symbol.input("req.align", INPUT.align, 0, request.LEAST_ALIGN, SIZES, true),
  node = symbol.input("req.node", INPUT.node, 0, 0, 63),
  device = symbol.input("req.device", INPUT.device, 0, -1, 63),
  live = symbol.input("req.live", INPUT.live, 0, 0, BYTES),
  line = symbol.input("req.line", INPUT.line, 0, 0, LINES),
}
local zero = symbol.expression(symbol.input("req.zero", INPUT.zero, 0, 0, 1))
local is_zeroed = condition.make("eq", zero, 1)
is_zeroed.text = "req.zero"

local FIELDS = {
  "tag", "file", "func", "module", "line", "size", "align", "zero", "node", "device", "live",
}

---@return string[] the names of the fields of `req`
function request.fields() return FIELDS end

local decide   -- function(condition) -> boolean
local mode     -- "traced", "concrete", or nil outside pick
local gauges   -- function(input name, n) -> number or symbol; nil outside pick
local current  -- the point of plain Lua

function request.connect(decider) decide = decider end

-- __index of `req`: gives `zero` while tracing, and refuses every unknown field.
local function missing(_, field)
  if site.is_text(field) or symbol.expression(field) then
    return frame.refuse("field", "req has no field named by a value of the request")
  end
  if mode == "traced" and field == "zero" then return decide(is_zeroed) end
  if not mode then
    return frame.refuse("field", "req has fields only while pick runs",
      "read req inside pick, and do not keep it")
  end
  return frame.refuse_word("field", "req has no field '" .. tostring(field) .. "'", field, FIELDS)
end

-- The fields of `req` are stored in the table itself, because pick reads them at every comparison.
-- An assignment to a stored field would call no metamethod; compiler/scan.lua refuses it
-- beforehand.
local req = setmetatable({}, {
  __index = missing,
  __newindex = function(_, field)
    return frame.refuse("write",
      "req." .. tostring(field) .. " cannot be assigned: a policy can only read its request",
      "store the result in a local variable")
  end,
})

request.req = req

-- ---- gauges

local inputs = { zero } -- the expressions of all numeric inputs
for _, name in ipairs { "size", "align", "node", "device", "live", "line" } do
  inputs[#inputs + 1] = symbol.expression(symbols[name])
end

function request.inputs() return inputs end

local pressure_symbol = symbol.input("loam.pressure()", INPUT.pressure, 0, 0, 100)
inputs[#inputs + 1] = symbol.expression(pressure_symbol)

local gauge_symbols = { node_free = {}, device_free = {} }

local function gauge_symbol(input, n)
  local made = gauge_symbols[input]
  if not made[n] then
    local name = "loam." .. (input == "node_free" and "node(" or "device(") .. n .. ").free"
    made[n] = symbol.input(name, INPUT[input], n, 0, BYTES)
    inputs[#inputs + 1] = symbol.expression(made[n])
  end
  return made[n]
end

---@return any bytes free on node or device `n`: a symbol or a number
function request.gauge(input, n)
  if not gauges then
    return frame.refuse("field", "free memory is known only when memory is requested",
      "read .free inside pick")
  end
  return gauges(input, n)
end

---@return boolean whether pick runs in plain Lua, on numbers
function request.is_concrete() return mode == "concrete" end

local has_pressure = false -- the policy has read memory pressure

---@return boolean whether pick has read memory pressure so far
function request.has_pressure() return has_pressure end

---@return any the percentage of time in which the control group waited for memory: a symbol or a
--- number
function request.pressure()
  if not mode then
    return frame.refuse("field", "memory pressure is known only when memory is requested",
      "call loam.pressure() inside pick")
  end
  has_pressure = true
  return mode == "traced" and pressure_symbol or current.pressure
end

-- ---- the two ways to run

local function concrete_gauge(input, n) return current[input][n] or 0 end

function request.trace()
  request.close()
  for name, value in pairs(symbols) do rawset(req, name, value) end
  for name, value in pairs(site.texts) do rawset(req, name, value) end
  mode, gauges = "traced", gauge_symbol
end

-- Switches to plain Lua: `req` has the strings of this site, and the numbers of request.set.
function request.place(where)
  -- A field that is stored is assigned without a call of __newindex.
  for _, field in ipairs(FIELDS) do rawset(req, field, false) end
  req.tag, req.file, req.func = where.tag or "", where.file or "", where.func or ""
  req.module = where.module or ""
  mode, gauges = "concrete", concrete_gauge
end

-- Gives `req` and the gauges the numbers of `point`: a field for each numeric input, `zero`, and
-- the tables node_free and device_free (bytes by node or device; 0 for one that is not in the
-- table).
function request.set(point)
  req.size, req.align, req.zero = point.size, point.align, point.zero
  req.node, req.device, req.live, req.line = point.node, point.device, point.live, point.line
  current = point
end

function request.close()
  for _, field in ipairs(FIELDS) do rawset(req, field, nil) end
  current, mode, gauges = nil, nil, nil
end

-- ---- points: one value for each input

local NOTHING = {} -- no free memory on any node or device

---@return table the point of a plain request for `size` bytes
function request.point(size)
  return { size = size, align = request.LEAST_ALIGN, zero = false, node = 0, device = -1, live = 0,
           line = 0, pressure = 0, node_free = NOTHING, device_free = NOTHING }
end

local NAME = {}
for name, number in pairs(INPUT) do NAME[number] = name end

local FREE = { [INPUT.node_free] = "node_free", [INPUT.device_free] = "device_free" }

---@return string|nil the field of a point that holds an input; nil for a gauge of free memory
function request.field(input)
  return not FREE[input.input] and NAME[input.input] or nil
end

---@return any the value of a point's field for a number of the input: a boolean for `zero`
function request.value(input, number)
  if input.input == INPUT.zero then return number == 1 end
  return number
end

---@return number the number of an input at a point
function request.read(point, input)
  if FREE[input.input] then return point[FREE[input.input]][input.arg] or 0 end
  local value = point[NAME[input.input]]
  if input.input == INPUT.zero then return value and 1 or 0 end
  return value
end

function request.write(point, input, value)
  local free = FREE[input.input]
  if free then
    if point[free] == NOTHING then point[free] = {} end
    point[free][input.arg] = value
  else
    point[NAME[input.input]] = request.value(input, value)
  end
end

local SHOWN = { "size", "align", "zero", "node", "device", "live", "line", "pressure" }
local DEFAULT = request.point(0)

---@return string the request in words: its size, and the other fields that are not as by default
function request.words(point)
  local words = {}
  for _, name in ipairs(SHOWN) do
    local value = point[name]
    if name == "size" or value ~= DEFAULT[name] then
      local text = type(value) == "number" and string.format("%d", value) or tostring(value)
      words[#words + 1] = name .. " " .. text
    end
  end
  for _, kind in ipairs { "node", "device" } do
    for n, free in pairs(point[kind .. "_free"]) do
      words[#words + 1] = string.format("%s %d free %d", kind, n, free)
    end
  end
  return table.concat(words, ", ")
end

request.LIVE = INPUT.live
request.SIZE = symbol.expression(symbols.size)

return request
