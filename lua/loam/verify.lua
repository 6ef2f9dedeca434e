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

local common -- sizes that every plan is tried at: the powers of two, and some drawn among them

local function common_sizes()
  if common then return common end
  common = {}
  for power = 0, 47 do common[#common + 1] = 2 ^ power end
  local seed = 42
  for _ = 1, RANDOM_SIZES do
    seed = seed * 16807 % 2147483647
    common[#common + 1] = math.floor(2 ^ (seed % 4700 / 100))
  end
  return common
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
  for _, n in ipairs(common_sizes()) do
    if not seen[n] then
      seen[n] = true
      list[#list + 1] = n
    end
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

-- What a request can have beside its size: each input's field in a point, and values to try there.
local function others_of(by_input, numbers)
  local others = {}
  for _, input in ipairs(request.inputs()) do
    if input.name ~= "req.size" then
      local values = values_of(input, by_input[input] or {}, numbers)
      for i, value in ipairs(values) do values[i] = request.value(input, value) end
      others[#others + 1] = {
        input = input, field = request.field(input), values = values, n = #values,
      }
    end
  end
  return others
end

-- Every request to try, one at a time: `try` may keep it until the next.
local function each_point(tree, constants, try)
  local by_input, numbers = bounds.thresholds(tree)
  for _, n in ipairs(constants) do numbers[#numbers + 1] = n end
  trace.walk(tree, function()
    local low, high = bounds.corners()
    try(low)
    try(high)
  end)
  local others, plain, mixed = others_of(by_input, numbers), request.point(0), request.point(0)
  local seed = 7
  local function mix()
    for i = 1, #others do
      local other = others[i]
      local field = other.field
      seed = seed * 16807 % 2147483647
      local value = other.values[seed % other.n + 1]
      if field then mixed[field] = value else request.write(mixed, other.input, value) end
    end
  end
  local size = request.SIZE
  local sizes, own = sizes_of(size, by_input[size] or {}, numbers)
  for i, n in ipairs(sizes) do
    if i <= own or i % 2 == 0 then
      mix()
      mixed.size = n
      try(mixed)
    end
    if i <= own or i % 2 == 1 then
      plain.size = n
      try(plain)
    end
  end
end

-- Compares the plan with `decide(point)`, which runs plain Lua and returns a leaf's key and words.
-- `leaves[i]` are the plan's. Returns the words of the first request that differs, and both
-- answers; nil if none does.
---@param emitted loam.Emitted
function verify.run(plan, emitted, tree, constants, decide)
  local found
  local leaves, decided = emitted.leaves, core.decide
  each_point(tree, constants, function(point)
    if found then return end
    local leaf = leaves[decided(plan, point) + 1]
    local key, words = decide(point)
    if key ~= leaf.key then
      found = { request = request.words(point), plan = leaf.words, lua = words }
    end
  end)
  return found
end

return verify
