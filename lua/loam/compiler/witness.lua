-- witness.lua - requests made from the values that a path leaves possible: those at its corners,
-- and a witness, which is a request that takes the path.

local condition = require("loam.symbolic.condition")
local request = require("loam.symbolic.request")

local witness = {}

local MAX_TRIES = 4000

-- Returns whether an input has fewer possible values than at the start, or cannot be `usual`.
local function is_narrowed(input, usual)
  return input.low ~= input.least or input.high ~= input.most or input.holes[usual]
end

local function corner(side)
  local point = request.point(0)
  for _, input in ipairs(request.inputs()) do
    if is_narrowed(input, request.read(point, input)) then
      request.write(point, input, input[side])
    end
  end
  return point
end

---@return table, table the points with every input at its least, and at its greatest possible value
function witness.corners()
  return corner("low"), corner("high")
end

local function is_within(input, value)
  if input.power and (value < 1 or math.frexp(value) ~= 0.5) then return false end
  return value >= input.low and value <= input.high and not input.holes[value]
end

local function numbers_of(e, into)
  if type(e) == "number" then
    into[#into + 1] = e
  elseif e.op ~= "input" then
    numbers_of(e.a, into)
    if e.b then numbers_of(e.b, into) end
  end
end

local function inputs_of(e, into)
  if type(e) ~= "table" then return end
  if e.op == "input" then into[e] = true return end
  inputs_of(e.a, into)
  inputs_of(e.b, into)
end

-- Returns values of an input to try: its ends, powers of two, and values next to the conditions'
-- numbers.
local function candidates(input, numbers)
  local list, seen = {}, {}
  local function add(value)
    value = math.floor(value)
    if value == value and not seen[value] and is_within(input, value) then
      seen[value] = true
      list[#list + 1] = value
    end
  end
  add(input.low)
  add(input.high)
  for _, n in ipairs(numbers) do
    if math.abs(n) < 2 ^ 53 then for d = -1, 1 do add(n + d) end end
  end
  for power = 0, 47 do
    for d = -1, 1 do add(2 ^ power + d) end
  end
  return list
end

local function all_hold(known, point)
  local function read(input) return request.read(point, input) end
  for c, outcome in pairs(known) do
    if condition.holds(c, read) ~= outcome then return false end
  end
  return true
end

-- Tries combinations of candidates, drawn by a generator of pseudo-random numbers; a single input
-- is tried value by value. Returns the point if all conditions hold, nil after MAX_TRIES.
local function search(point, inputs, choices, known)
  local seed = 1
  for try = 0, MAX_TRIES do
    for i, input in ipairs(inputs) do
      seed = seed * 16807 % 2147483647
      local list = choices[i]
      local at = #inputs == 1 and try % #list or seed % #list
      request.write(point, input, list[at + 1])
    end
    if all_hold(known, point) then return point end
  end
  return nil
end

-- Finds a request that takes the present path. A path of simple conditions always has one; for a
-- path with computed conditions (`known`: condition -> outcome) the search may fail.
---@return table|nil point
function witness.find(known)
  local point, used, numbers = corner("low"), {}, {}
  for c in pairs(known) do
    inputs_of(c.left, used)
    inputs_of(c.right, used)
    numbers_of(c.left, numbers)
    numbers_of(c.right, numbers)
  end
  local inputs, choices = {}, {}
  for _, input in ipairs(request.inputs()) do
    if used[input] then
      inputs[#inputs + 1] = input
      choices[#choices + 1] = candidates(input, numbers)
    end
  end
  if #inputs == 0 then return point end
  return search(point, inputs, choices, known)
end

---@return table, number[] the numbers that simple conditions of a tree compare each input with, by
-- input; and all numbers in its computed conditions
function witness.thresholds(tree)
  local by_input, numbers = {}, {}
  local function visit(node)
    local c = node.condition
    if not c then return end
    if c.complex then
      numbers_of(c.left, numbers)
      numbers_of(c.right, numbers)
    else
      local list = by_input[c.input] or {}
      by_input[c.input] = list
      list[#list + 1] = c.k
    end
    visit(node.yes)
    visit(node.no)
  end
  visit(tree)
  return by_input, numbers
end

return witness
