-- bounds - requests from what a path has settled: corners to try it at, witnesses that take it.

local condition = require("loam.condition")
local request = require("loam.request")

local bounds = {}

local MAX_TRIES = 4000

local function is_narrowed(input)
  return input.low ~= input.least or input.high ~= input.most
end

local function corner(side)
  local point = request.point(0)
  for _, input in ipairs(request.inputs()) do
    if is_narrowed(input) then request.write(point, input, input[side]) end
  end
  return point
end

---@return table, table the points at the low and at the high end of every input of the present path
function bounds.corners()
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

-- Values of an input worth trying: its ends, powers of two, and around the conditions' numbers.
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

-- Tries combinations of candidates, by a walk that reaches all of them in the end.
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

-- A request that takes the present path: for paths of simple conditions always, for those with
-- computed ones (`known`: condition -> outcome) if the search finds it.
---@return table|nil point
function bounds.witness(known)
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

-- The numbers that the conditions of a tree compare with, by input, and all of those computed with.
function bounds.thresholds(tree)
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

return bounds
