-- verify - a traced plan against the policy run as plain Lua, on real numbers.
--
-- Whatever tracing might miss shows as a difference near some number: a threshold of the plan, a
-- constant of the policy, a power of two. The requests tried are the two corners of every leaf and
-- sizes around all those numbers, with the other inputs as by default and around theirs in turn
-- (both around the plan's own thresholds); the same ones at every load.

local bounds = require("loam.bounds")
local core = require("loam.core")
local request = require("loam.request")
local trace = require("loam.trace")

local verify = {}

local MAX_SIZES = 1500
local RANDOM_SIZES = 32

local function random_from(seed)
  return function()
    seed = seed * 16807 % 2147483647
    return seed
  end
end

-- Integers next to `n` that the input can be.
local function add_value(list, seen, input, value)
  if value >= input.least and value <= input.most and not seen[value] then
    seen[value] = true
    list[#list + 1] = value
  end
end

local function add_around(list, seen, input, n)
  if n ~= n or math.abs(n) > 2 ^ 53 then return end
  for d = -1, 1 do add_value(list, seen, input, math.floor(n) + d) end
end

-- Sizes to try; the first of them, as many as the second result says, are around the thresholds.
local function sizes_of(input, thresholds, constants)
  local list, seen = {}, {}
  local function add(n)
    if #list < MAX_SIZES then add_around(list, seen, input, n) end
  end
  for _, k in ipairs(thresholds) do add(k) end
  local own = #list
  add(input.least)
  add(input.most)
  for _, k in ipairs(constants) do add(k) end
  for power = 0, 47 do add_value(list, seen, input, 2 ^ power) end
  local random = random_from(42)
  for _ = 1, RANDOM_SIZES do
    add_value(list, seen, input, math.floor(2 ^ (random() % 4700 / 100)))
  end
  return list, own
end

local function values_of(input, thresholds, constants)
  local list, seen = {}, {}
  local function add(n) add_around(list, seen, input, n) end
  for _, k in ipairs(thresholds) do add(k) end
  if input.power then
    list = {}
    for power = 0, 14 do list[#list + 1] = 2 ^ power end
    return list
  end
  for i = 1, math.min(#constants, 32) do add(constants[i]) end
  add(input.least)
  add(2 ^ 20)
  return list
end

-- Every request to try, one at a time.
local function each_point(tree, constants, try)
  local by_input, numbers = bounds.thresholds(tree)
  for _, n in ipairs(constants) do numbers[#numbers + 1] = n end
  trace.walk(tree, function()
    local low, high = bounds.corners()
    try(low)
    try(high)
  end)
  local size, others = nil, {}
  for _, input in ipairs(request.inputs()) do
    local values = values_of(input, by_input[input] or {}, numbers)
    if input.name == "req.size" then
      size = input
    else
      others[#others + 1] = {
        input = input, field = request.field(input), values = values, n = #values,
      }
    end
  end
  local random = random_from(7)
  local function mixed(n)
    local point = request.point(n)
    for i = 1, #others do
      local other = others[i]
      local field, value = other.field, other.values[random() % other.n + 1]
      if field then point[field] = value else request.write(point, other.input, value) end
    end
    return point
  end
  local sizes, own = sizes_of(size, by_input[size] or {}, numbers)
  for i, n in ipairs(sizes) do
    if i <= own or i % 2 == 0 then try(mixed(n)) end
    if i <= own or i % 2 == 1 then try(request.point(n)) end
  end
end

-- Compares the plan with `decide(point)`, which runs plain Lua and returns a leaf's key and words.
-- `leaves[i]` are the plan's. Returns the first request that differs and both words; nil if none.
---@param emitted loam.Emitted
function verify.run(plan, emitted, tree, constants, decide)
  local found
  each_point(tree, constants, function(point)
    if found then return end
    local leaf = emitted.leaves[core.decide(plan, point) + 1]
    local key, words = decide(point)
    if key ~= leaf.key then found = { point = point, plan = leaf.words, lua = words } end
  end)
  return found
end

return verify
