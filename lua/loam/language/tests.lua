-- tests.lua - the tests of a policy: requests, and the strategy that each of them expects.

local diag = require("loam.report.diag")
local frame = require("loam.report.frame")
local options = require("loam.language.options")
local ordered = require("loam.language.ordered")
local request = require("loam.symbolic.request")
local source = require("loam.language.source")
local strategy = require("loam.language.strategy")
local symbol = require("loam.symbolic.symbol")

local tests = {}

local STRINGS = { tag = true, file = true, func = true, module = true }
local MAX_TAG = 255 -- bytes
local RANGES = { -- least, most, the most in words
  size = { 0, 2 ^ 47, "2^47" }, align = { 1, 2 ^ 47, "2^47" }, live = { 0, 2 ^ 52, "2^52" },
  node = { 0, 63, "63" }, device = { -1, 63, "63" }, line = { 0, 2 ^ 31 - 1, "2^31 - 1" },
  pressure = { 0, 100, "100" },
}
local KEYS = {
  "tag", "size", "expect", "align", "zero", "node", "live", "device", "file", "func", "module",
  "line", "node_free", "device_free", "pressure",
}

local text  -- of the policy
local lines -- of its tests (source.test_lines); found when the first message needs one

local function line_of(n)
  lines = lines or source.test_lines(text)
  return n and lines[n] or lines.start
end

---@return integer|nil the line on which the test begins; nil if it was not found
function tests.line(test) return line_of(test.n) end

local function refuse(test, reason, suggestion)
  return frame.refuse("test", "test " .. test.n .. ": " .. reason, suggestion, tests.line(test))
end

local function wrong(test, key, value, possible)
  return refuse(test, key .. " = " .. options.show(value) .. ": must be " .. possible,
    symbol.size_advice(value))
end

local function is_number_in(value, range)
  local is_whole = type(value) == "number" and value == math.floor(value)
  return is_whole and value >= range[1] and value <= range[2]
end

local function number(test, key, value)
  local range = RANGES[key]
  if not is_number_in(value, range) then
    wrong(test, key, value, "a whole number from " .. range[1] .. " to " .. range[3])
  end
  if key ~= "align" then return value end
  if math.frexp(value) ~= 0.5 then wrong(test, key, value, "a power of two") end
  return math.max(value, request.LEAST_ALIGN)
end

local function free_bytes(test, key, value)
  local out = {}
  for n, bytes in next, value do
    if not is_number_in(n, RANGES.node) then
      refuse(test, key .. ": must be a table with a number of bytes for each node or device",
        "write " .. key .. " = {[0] = 2 * loam.GiB}")
    end
    if not is_number_in(bytes, RANGES.live) then
      wrong(test, key .. "[" .. n .. "]", bytes, "a whole number from 0 to " .. RANGES.live[3])
    end
    out[n] = bytes
  end
  return out
end

local function string_of(test, key, value)
  if type(value) ~= "string" then wrong(test, key, value, "a string") end
  if string.find(value, "\0", 1, true) then wrong(test, key, value, "text without a zero byte") end
  if key == "tag" and #value > MAX_TAG then
    wrong(test, key, value, "at most " .. MAX_TAG .. " bytes")
  end
  return value
end

local function field(test, key, value)
  if STRINGS[key] then
    test.where[key] = string_of(test, key, value)
  elseif key == "line" then
    test.point.line = number(test, key, value)
  elseif RANGES[key] then
    test.point[key] = number(test, key, value)
  elseif key == "zero" then
    if type(value) ~= "boolean" then wrong(test, key, value, "true or false") end
    test.point.zero = value
  elseif key == "expect" then
    if not strategy.members(value) then
      refuse(test, "expect = " .. options.show(value) .. ": must be a strategy",
        "write the name of a strategy's local variable, without quotes: expect = scratch")
    end
    test.expect = value
  elseif key == "node_free" or key == "device_free" then
    if type(value) ~= "table" then
      wrong(test, key, value, "a table such as {[0] = 2 * loam.GiB}")
    end
    test.point[key] = free_bytes(test, key, value)
  else
    local word = tostring(key)
    local nearest = diag.suggest(word, KEYS)
    refuse(test, "there is no field '" .. word .. "'",
      nearest and "did you mean '" .. nearest .. "'?" or "possible: " .. table.concat(KEYS, ", "))
  end
end

local function read_one(n, given)
  local test = { n = n, where = { tag = "" }, point = request.point(0) }
  if type(given) ~= "table" then
    refuse(test, "it is a " .. type(given) .. ", not a table",
      "write { size = 100, expect = scratch }")
  end
  for key, value in ordered.pairs(given, false) do field(test, key, value) end
  if rawget(given, "size") == nil then refuse(test, "it has no size", "write size = 100") end
  if not test.expect then
    refuse(test, "it has no expect, or expect is nil", "write expect = scratch")
  end
  return test
end

-- Checks the list `tests` of the policy whose file has this text.
---@return table[] tests, each { n, where, point, expect }
function tests.read(given, policy_text)
  local list, count = {}, 0
  text, lines = policy_text, nil
  for _ in next, given do count = count + 1 end
  for n = 1, count do
    local entry = rawget(given, n)
    if entry == nil then
      frame.refuse("test", "tests is not a list without gaps", "write tests = { {…}, {…} }",
        line_of(nil))
    end
    list[n] = read_one(n, entry)
  end
  return list
end

---@return string the request of the test, in words
function tests.words(test)
  local words = "tag '" .. test.where.tag .. "', "
  for _, key in ipairs { "file", "func", "module" } do
    if test.where[key] then words = words .. key .. " '" .. test.where[key] .. "', " end
  end
  return words .. request.words(test.point)
end

-- Returns whether two chains have different strategies of one name.
local function share_a_name(a, b)
  for _, one in ipairs(strategy.members(a)) do
    for _, other in ipairs(strategy.members(b)) do
      if one.name == other.name and one ~= other then return true end
    end
  end
  return false
end

local function listed(chain, quote, has_lines)
  local out = {}
  for i, member in ipairs(strategy.members(chain)) do
    out[i] = quote .. member.name .. quote .. (has_lines and " of line " .. member.line or "")
  end
  return table.concat(out, " or else ")
end

-- If `expect` is a single strategy, the first member of the chain has to be it; if `expect` is a
-- chain, the whole chain has to be equal.
---@return boolean whether the test passes with `chain`
function tests.passes(test, chain)
  if test.expect == chain then return true end
  local wanted, found = strategy.members(test.expect), strategy.members(chain)
  return #wanted == 1 and wanted[1] == found[1]
end

-- Returns the strategies that a test expects, and those that it got, in words. In a test that
-- fails, the words give strategies of one name the lines on which the policy makes them.
---@param quote string around each name
---@return string expected, string got
function tests.compared(test, chain, quote)
  local has_lines = not tests.passes(test, chain) and share_a_name(test.expect, chain)
  return listed(test.expect, quote, has_lines), listed(chain, quote, has_lines)
end

---@return loam.Diagnostic of a test that got `chain` by the conditions in `story`
function tests.failure(test, chain, story, line)
  local expected, got = tests.compared(test, chain, "'")
  return diag.new {
    line = tests.line(test), class = "test", led = story,
    reason = string.format("test %d (%s) expects %s and gets %s", test.n, tests.words(test),
      expected, got),
    suggestion = line and "line " .. line .. " of the policy returns that strategy" or nil,
  }
end

return tests
