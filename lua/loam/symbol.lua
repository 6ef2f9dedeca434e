-- symbol - numbers of a request that are not known yet, as values a policy can compute with.
--
-- A symbol is an FFI struct without fields, so that every comparison and operator on it arrives in
-- a metamethod whatever the other side is (a table would be silently unequal to a number). What
-- stands behind it is an expression: an input of the request, or an operation on expressions and
-- numbers. Equal expressions are one symbol. Comparing makes a condition (condition.lua) and asks
-- who listens (trace.lua) for its outcome.

local condition = require("loam.condition")
local ffi = require("ffi")
local here = require("loam.here")

local symbol = {}

local MAX_DEPTH = 31 -- of the evaluator's stack in core, less one for the other side
local MAX_CODE = 1000

local expressions = {} -- symbol -> expression
local decide           -- function(condition) -> boolean
local read_text        -- function(value) -> string, for the strings of a site

-- `decider` answers conditions; `reader` gives the string behind a text, nil for all else.
function symbol.connect(decider, reader)
  decide, read_text = decider, reader
end

---@return table|nil expression behind a symbol
function symbol.expression(value)
  return expressions[value]
end

local function describe(value)
  local kind = type(value)
  if kind == "nil" or kind == "boolean" then return tostring(value) end
  if kind == "string" then return "the string \"" .. value .. "\"" end
  return "a " .. (kind == "cdata" and "64-bit integer" or kind)
end

-- A number or an expression; with `coerce`, also what Lua's arithmetic would make of a string.
local function operand(value, coerce)
  if type(value) == "number" then return value end
  if expressions[value] then return expressions[value] end
  return coerce and tonumber(read_text(value) or type(value) == "string" and value or nil)
end

local function operands(a, b, what, coerce)
  local left, right = operand(a, coerce), operand(b, coerce)
  if left and right then return left, right end
  local other = b
  if not left then other = a end
  return here.refuse("type",
    what .. " " .. condition.text(left or right) .. " with " .. describe(other),
    "both sides have to be numbers; what a table does not have is nil")
end

local new -- the metatype's constructor, below

local function make(expression)
  if expression.depth > MAX_DEPTH or expression.code > MAX_CODE then
    here.refuse("expression", "this expression has " .. expression.code .. " operations, nested "
      .. expression.depth .. " deep; at most " .. MAX_CODE .. " and " .. MAX_DEPTH
      .. " can be compiled", "compare parts of it on their own")
  end
  local handle = new()
  expressions[handle] = expression
  expression.handle = handle
  return handle
end

local function depth(e) return type(e) == "number" and 1 or e.depth end
local function code(e) return type(e) == "number" and 1 or e.code end

-- What stands for an operand in a cache. NaN cannot be a key, and the signed zeros are one key but
-- two numbers, which differ in arithmetic.
local function key(e, arithmetic)
  if type(e) == "table" then return e.handle end
  if e ~= e then return "nan" end
  if e ~= 0 or not arithmetic then return e end
  return 1 / e > 0 and "+0" or "-0"
end

-- A cache of what is made of two operands: replays repeat the same ones many times. `fast` has
-- those that can be looked up as they come: a text, say, is another string at the next site.
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
  return here.refuse("text",
    "a number of the request cannot become text: it differs from one allocation to the next",
    "compare it with numbers, and return strategies with fixed names")
end

local methods = {
  __lt = compare("lt"), __le = compare("le"), __eq = compare("eq"),
  __add = binary("add"), __sub = binary("sub"), __mul = binary("mul"), __div = binary("div"),
  __mod = binary("mod"), __pow = binary("pow"), __unm = unary("neg"),
  __concat = no_text, __tostring = no_text,
}

function methods.__len(a)
  return here.refuse("type", condition.text(expressions[a]) .. " is a number and has no length")
end

function methods.__index(a, field)
  return here.refuse("type", condition.text(expressions[a]) .. " is a number and has no field '"
    .. (type(field) == "string" and field or type(field)) .. "'")
end

function methods.__newindex(a)
  return here.refuse("write", condition.text(expressions[a]) .. " cannot be written to")
end

function methods.__call(a)
  return here.refuse("type", condition.text(expressions[a]) .. " is a number, not a function")
end

new = ffi.metatype("struct {}", methods)

symbol.negate = methods.__unm
symbol.equal = methods.__eq
symbol.add = methods.__add

-- Whole numbers stay what they are under floor and ceil.
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

-- A number that the request brings. `input` and `arg` are plan.h's; low..high its whole range, all
-- of it integers (only powers of two where `power` is set).
function symbol.input(name, input, arg, low, high, power)
  return make {
    op = "input", name = name, input = input, arg = arg, depth = 1, code = 1,
    least = low, most = high, low = low, high = high, holes = {}, power = power,
  }
end

return symbol
