-- verify.lua - compares a traced plan with the policy run as plain Lua, on real numbers.
--
-- If tracing missed something, the difference shows near some number: a threshold of the plan, a
-- constant of the policy, a power of two. The requests tried are the two corners of every leaf, and
-- sizes around all those numbers. The other inputs have their defaults, and in turn values around
-- their own numbers; sizes around the plan's own thresholds are tried with both. Every load tries
-- the same requests. A policy with very many classes asks of each class only some of the sizes that
-- are not its own thresholds, other ones for each class.

local witness = require("loam.compiler.witness")
local core = require("loam.core")
local request = require("loam.symbolic.request")
local trace = require("loam.compiler.trace")

local verify = {}

local MAX_SIZES = 1500
local LARGEST_POWER = 2 ^ 14 -- of an input that has powers of two only
local RANDOM_SIZES = 32
local WHOLE_CLASSES = 32 -- the first classes, at which all sizes are tried
local SHARES = 16        -- at a later class, one size in 16 is tried

-- Adds `value` to the list, if the input can have it and the list does not.
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

local common -- sizes that are tried for every plan: powers of two, and pseudo-random sizes

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

---@return number[], integer the sizes to try, and how many at the front are around thresholds
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
    list = { input.least }
    while list[#list] < LARGEST_POWER do list[#list + 1] = 2 * list[#list] end
    return list
  end
  for i = 1, math.min(#constants, 32) do add(constants[i]) end
  add(input.least)
  add(2 ^ 20)
  return list
end

-- Returns, for each input other than the size, its field in a point and the values to try.
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

-- Calls `try(point)` for every request. The point changes after `try` returns. `number` is the
-- number of the class.
local function each_point(tree, constants, number, try)
  local by_input, numbers = witness.thresholds(tree)
  for _, n in ipairs(constants) do numbers[#numbers + 1] = n end
  trace.walk(tree, function()
    local low, high = witness.corners()
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
  local function try_size(i, n)
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
  for i, n in ipairs(sizes) do
    if i <= own or number <= WHOLE_CLASSES or (i + number) % SHARES == 0 then try_size(i, n) end
  end
end

-- Compares the plan with `decide(point)`, which runs plain Lua and returns the key and the words of
-- a leaf. Returns { request, plan, lua } of the first request with different answers; nil if there
-- is none.
---@param emitted loam.Emitted
---@param number integer of the class, from 1
function verify.run(plan, emitted, tree, constants, number, decide)
  local found
  local leaves, decided = emitted.leaves, core.decide
  each_point(tree, constants, number, function(point)
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
