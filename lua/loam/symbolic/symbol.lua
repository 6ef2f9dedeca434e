-- symbol.lua - the numbers of a request, unknown while a policy is compiled, as values that the
-- policy can compute with.
--
-- A symbol is an FFI struct without fields, so that every comparison and operator on it calls a
-- metamethod, whatever the other side is. (With a table for a symbol, `==` against a number would
-- be false without a call.) A symbol stands for an expression: an input of the request, or an
-- operation on expressions and numbers. Equal expressions are one symbol. A comparison makes a
-- condition (condition.lua) and asks trace.lua for its outcome.

local condition = require("loam.symbolic.condition")
local ffi = require("ffi")
local frame = require("loam.report.frame")
local site = require("loam.symbolic.site")

local symbol = {}

local MAX_DEPTH = 31 -- the stack of core's evaluator, less one entry for the other side
local MAX_CODE = 1000 -- operations of one expression

local expressions = {} -- symbol -> expression
local decide           -- function(condition) -> boolean

-- Sets the function that gives the outcome of a condition.
function symbol.connect(decider) decide = decider end

---@return table|nil expression behind a symbol
function symbol.expression(value)
  return expressions[value]
end

local function describe(value)
  local kind = type(value)
  if kind == "nil" or kind == "boolean" then return tostring(value) end
  if kind == "string" then return "the string \"" .. value .. "\"" end
  if site.is_text(value) then return site.name(value) .. ", which is a string" end
  return "a " .. (kind == "cdata" and "64-bit integer" or kind)
end

---@return string|nil what to write in place of a string such as "2 GB"; nil: it is no size
function symbol.size_advice(value)
  local count, unit = string.match(type(value) == "string" and value or "",
    "^%s*(%d+%.?%d*)%s*([kKmMgGtT])[iI]?[bB]?%s*$")
  return count and "write " .. count .. " * loam." .. string.upper(unit) .. "iB" or nil
end

-- Returns a suggestion for an operand that is not a number.
local function advice(value)
  local size = symbol.size_advice(value)
  if size then return size end
  if value == nil then
    return "check that the value was set: a table gives nil for a key that it does not have"
  end
  if site.is_text(value) then
    return "compare a string with a string, or ask req.tag:under, :is, :glob or :part"
  end
  return "write a number, such as 4096 or 4 * loam.MiB"
end

-- The number or the expression behind a value; nil if it has none. With `coerce`, a string has the
-- number that Lua's arithmetic makes of it.
local function operand(value, coerce)
  if type(value) == "number" then return value end
  if expressions[value] then return expressions[value] end
  return coerce and tonumber(type(value) == "string" and value or nil)
end

local function operands(a, b, what, coerce)
  local left, right = operand(a, coerce), operand(b, coerce)
  if left and right then return left, right end
  local other = b
  if not left then other = a end
  return frame.refuse("type",
    what .. " " .. condition.text(left or right) .. " with " .. describe(other), advice(other))
end

local new -- the metatype's constructor, below

local function make(expression)
  if expression.depth > MAX_DEPTH or expression.code > MAX_CODE then
    frame.refuse("expression", "this expression has " .. expression.code .. " operations, nested "
      .. expression.depth .. " deep; at most " .. MAX_CODE .. " and " .. MAX_DEPTH
      .. " can be compiled", "compare the parts of it one by one")
  end
  local handle = new()
  expressions[handle] = expression
  expression.handle = handle
  return handle
end

local function depth(e) return type(e) == "number" and 1 or e.depth end
local function code(e) return type(e) == "number" and 1 or e.code end

-- The key of an operand in a cache. NaN cannot be a key of a table. 0 and -0 are one key of a
-- table, but give different results in arithmetic.
local function key(e, arithmetic)
  if type(e) == "table" then return e.handle end
  if e ~= e then return "nan" end
  if e ~= 0 or not arithmetic then return e end
  return 1 / e > 0 and "+0" or "-0"
end

-- Makes a cache of results by their two operands, since replays repeat the same operations many
-- times. Returns `fast`, a table to look the operands up in directly, and `slow`, a function for
-- operands that are not in it. Strings of the policy never get into `fast`.
local function made_of_pairs(what, arithmetic, build)
  local fast, all = {}, {}
  local function slow(a, b)
    local left, right = operands(a, b, what, arithmetic)
    local left_key, right_key = key(left, arithmetic), key(right, arithmetic)
    local row = all[left_key] or {}
    all[left_key] = row
    row[right_key] = row[right_key] or build(left, right)
    if rawequal(left_key, a) and rawequal(right_key, b) then
      fast[a] = fast[a] or {}
      fast[a][b] = row[right_key]
    end
    return row[right_key]
  end
  return fast, slow
end

local function binary(op)
  local fast, slow = made_of_pairs("arithmetic on", true, function(left, right)
    return make {
      op = op, a = left, b = right,
      depth = math.max(depth(left), depth(right) + 1),
      code = code(left) + code(right) + 1,
    }
  end)
  return function(a, b)
    local row = fast[a]
    return row and row[b] or slow(a, b)
  end
end

local function unary(op)
  local cache = {}
  return function(a)
    local made = cache[a]
    if not made then
      local e = expressions[a]
      made = make { op = op, a = e, depth = e.depth, code = e.code + 1 }
      cache[a] = made
    end
    return made
  end
end

local function compare(cmp)
  local fast, slow = made_of_pairs("comparing", false, function(left, right)
    return condition.make(cmp, left, right)
  end)
  return function(a, b)
    local row = fast[a]
    return decide(row and row[b] or slow(a, b))
  end
end

local function no_text()
  return frame.refuse("text",
    "a number of the request cannot become text: it differs from one allocation to the next",
    "compare the number with numbers, and give strategies fixed names")
end

local methods = {
  __lt = compare("lt"), __le = compare("le"), __eq = compare("eq"),
  __add = binary("add"), __sub = binary("sub"), __mul = binary("mul"), __div = binary("div"),
  __mod = binary("mod"), __pow = binary("pow"), __unm = unary("neg"),
  __concat = no_text, __tostring = no_text,
}

function methods.__len(a)
  return frame.refuse("type", condition.text(expressions[a]) .. " is a number and has no length")
end

function methods.__index(a, field)
  return frame.refuse("type", condition.text(expressions[a]) .. " is a number and has no field '"
    .. (type(field) == "string" and field or type(field)) .. "'")
end

function methods.__newindex(a)
  return frame.refuse("write", condition.text(expressions[a]) .. " has no fields to assign")
end

function methods.__call(a)
  return frame.refuse("type", condition.text(expressions[a]) .. " is a number, not a function")
end

new = ffi.metatype("struct {}", methods)

symbol.equal = methods.__eq
symbol.add = methods.__add

-- An input is a whole number, so floor and ceil return it unchanged.
local function rounding(op)
  local apply = unary(op)
  return function(a)
    return expressions[a].op == "input" and a or apply(a)
  end
end

symbol.floor = rounding("floor")
symbol.ceil = rounding("ceil")
symbol.abs = unary("abs")
symbol.min = binary("min")
symbol.max = binary("max")

-- Makes the symbol of a number that each request brings. `input` and `arg` identify it to core
-- (LM_IN_* in plan.h). Its values are the integers from `low` to `high`; with `power`, only powers
-- of two.
function symbol.input(name, input, arg, low, high, power)
  return make {
    op = "input", name = name, input = input, arg = arg, depth = 1, code = 1,
    least = low, most = high, low = low, high = high, holes = {}, power = power,
  }
end

return symbol
