-- scan.lua - faults that the bytecode of `pick` shows before it runs: writes, tables that it
-- builds, misspelt words.
--
-- Tracing sees a policy only on the paths that it takes; this module reads all instructions of
-- `pick`, of the functions nested in it, and of the policy's other functions that it can reach by
-- upvalues, globals and constant tables. It also gathers the numeric constants of all these, near
-- which verify.lua compares a traced plan with plain Lua.

local diag = require("loam.report.diag")
local util = require("jit.util")
local vmdef = require("jit.vmdef")

local gsub, sub = string.gsub, string.sub
local floor = math.floor

local scan = {}

local MAX_TABLES = 2000
local MAX_CONSTANTS = 2000

local FIELDS = {
  "tag", "file", "func", "module", "line", "size", "align", "zero", "node", "device", "live",
}

-- ---- instructions

local OPCODES = {} -- the names of the instructions, by their numbers
for at = 0, #vmdef.bcnames / 6 - 1 do
  OPCODES[at] = gsub(sub(vmdef.bcnames, at * 6 + 1, at * 6 + 6), " ", "")
end

-- Takes a 32-bit instruction apart: its opcode, A, and either C and B or, over both of them, D.
local function decode(ins)
  ins = ins % 2 ^ 32
  local d = floor(ins / 65536)
  return {
    op = OPCODES[ins % 256], a = floor(ins / 256) % 256, b = floor(d / 256), c = d % 256, d = d,
  }
end

local function constant_string(f, index)
  local value = util.funck(f, -index - 1)
  return type(value) == "string" and value or nil
end

-- ---- the walk

---@class loam.Scan
---@field found loam.Diagnostic[]
---@field constants table<number, boolean>
---@field env table of the policy
---@field source string chunk of the policy
---@field subject string what is read, in the words of messages: "pick"

local function report(walk, line, fields)
  local key = line .. fields.class .. fields.reason
  if walk.seen[key] then return end
  walk.seen[key] = true
  fields.line = line
  walk.found[#walk.found + 1] = diag.new(fields)
end

local function add_constant(walk, value)
  local is_finite = value - value == 0
  if not is_finite or walk.constants[value] or walk.constant_n >= MAX_CONSTANTS then return end
  walk.constants[value] = true
  walk.constant_n = walk.constant_n + 1
end

-- Returns t[name]. The sandbox's tables raise a diagnostic for a word that they do not have; it is
-- reported at `line`, and the second result is true.
local function look_up(walk, line, t, name)
  local ok, value = pcall(function() return t[name] end)
  if ok then return value end
  if not diag.is(value) then error(value, 0) end
  report(walk, line, value)
  return nil, true
end

local function written(walk, line, what)
  report(walk, line, {
    class = "write", reason = walk.subject .. " writes to " .. what
      .. ", which outlives the request",
    suggestion = "set local variables of the function only: its answer has to depend on the "
      .. "request alone",
  })
end

local READ = {} -- opcode -> function(walk, unit, instruction, line)

local function built(walk, unit, i, line)
  unit.fresh[i.a] = true
  report(walk, line, {
    class = "table", reason = walk.subject .. " builds a table",
    suggestion = "make the table, or the strategy, once, above pick, and read it here",
  })
end

READ.TNEW, READ.TDUP = built, built

-- A store into a table that pick has just built is part of building it: it is reported once.
local function stored(register)
  return function(walk, unit, i, line)
    local table_at = register(i)
    if unit.fresh[table_at] then return end
    written(walk, line, "a table")
  end
end

local function in_b(i) return i.b end
for _, op in ipairs { "TSETV", "TSETS", "TSETB", "TSETR" } do READ[op] = stored(in_b) end
READ.TSETM = stored(function(i) return i.a - 1 end)

function READ.GSET(walk, unit, i, line)
  written(walk, line, "the global '" .. (constant_string(unit.f, i.d) or "?") .. "'")
end

-- A nested function may write local variables of the function around it: pick ends before the
-- next request.
local function upvalue_set(walk, unit, i, line)
  local name = util.funcuvname(unit.f, i.a) or "?"
  if unit.outer and not unit.outer[name] then return end
  written(walk, line, "'" .. name .. "', a local variable outside it")
end

for _, op in ipairs { "USETV", "USETS", "USETN", "USETP" } do READ[op] = upvalue_set end

-- Reports a global that is nil, unless the environment has refused the name itself.
local function look_up_global(walk, line, name)
  local value, refused = look_up(walk, line, walk.env, name)
  if value == nil and not refused then
    report(walk, line, { class = "global", reason = "'" .. name .. "' is not defined" })
  end
  return value
end

function READ.GGET(walk, unit, i, line)
  local name = constant_string(unit.f, i.d)
  if not name then return end
  local value = look_up_global(walk, line, name)
  unit.from = type(value) == "table" and { value = value, register = i.a, pc = unit.pc } or nil
  walk.visit(value)
end

local function check_request_field(walk, line, field)
  if walk.is_field[field] then return end
  local nearest = diag.suggest(field, FIELDS)
  report(walk, line, {
    class = "field", reason = "req has no field '" .. field .. "'",
    suggestion = nearest and "did you mean '" .. nearest .. "'?"
      or "possible: " .. table.concat(FIELDS, ", "),
  })
end

-- A field of a global table (`math.floor`) is read by the instruction that follows the read of the
-- global.
function READ.TGETS(walk, unit, i, line)
  local field, from = constant_string(unit.f, i.c), unit.from
  if from and from.register == i.b and from.pc == unit.pc - 1 then
    look_up(walk, line, from.value, field)
  elseif i.b == unit.request then
    check_request_field(walk, line, field)
  end
end

function READ.KSHORT(walk, _, i)
  add_constant(walk, i.d < 32768 and i.d or i.d - 65536)
end

function READ.TGETB(walk, _, i) add_constant(walk, i.c) end

-- The first two letters of operations whose A is not a destination. Two of these operations copy as
-- well as test: ISTC and ISFC.
local NO_TARGET = {
  IS = true, TS = true, US = true, UC = true, GS = true, RE = true, JM = true, LO = true,
  CA = true, FU = true,
}

local function overwrite(unit, i)
  if NO_TARGET[sub(i.op, 1, 2)] and i.op ~= "ISTC" and i.op ~= "ISFC" then return end
  if i.op ~= "TNEW" and i.op ~= "TDUP" then unit.fresh[i.a] = nil end
  if unit.request == i.a then unit.request = nil end
end

local function read_instruction(walk, unit)
  local ins = util.funcbc(unit.f, unit.pc)
  if not ins then return false end
  local i = decode(ins)
  local reader = READ[i.op]
  -- funcinfo is slow, so it is called only for instructions that may be reported.
  if reader then reader(walk, unit, i, util.funcinfo(unit.f, unit.pc).currentline or 0) end
  overwrite(unit, i)
  return true
end

local function names_of_upvalues(f)
  local names = {}
  for index = 0, 255 do
    local name = util.funcuvname(f, index)
    if not name then return names end
    names[name] = true
  end
  return names
end

-- Reads one function or prototype. `outer` has the names of the upvalues of the function in which
-- it is nested; `request` is the register of `req`.
local function read_unit(walk, f, outer, request)
  local unit = { f = f, outer = outer, request = request, fresh = {}, pc = 1 }
  while read_instruction(walk, unit) do unit.pc = unit.pc + 1 end
  local info = util.funcinfo(f)
  for index = 0, (info.nconsts or 0) - 1 do
    local value = util.funck(f, index)
    if type(value) == "number" then add_constant(walk, value) end
  end
  local upvalues = names_of_upvalues(f)
  for index = 1, info.gcconsts or 0 do
    local value = util.funck(f, -index)
    if type(value) == "proto" then read_unit(walk, value, upvalues) end
  end
end

local function visit_function(walk, f, request)
  local info = util.funcinfo(f)
  if info.source ~= walk.source then return end
  read_unit(walk, f, nil, request)
  for index = 1, 255 do
    local name, value = debug.getupvalue(f, index)
    if not name then return end
    walk.visit(value)
  end
end

local function visit_table(walk, t)
  walk.table_n = walk.table_n + 1
  if walk.table_n > MAX_TABLES then return end
  for key, value in next, t do
    walk.visit(key)
    walk.visit(value)
  end
end

local function new_walk(pick, env, subject)
  local walk = {
    subject = subject,
    found = {}, constants = {}, constant_n = 0, env = env, seen = {}, table_n = 0,
    source = util.funcinfo(pick).source, is_field = {},
  }
  for _, field in ipairs(FIELDS) do walk.is_field[field] = true end
  local visited = {}
  function walk.visit(value)
    local kind = type(value)
    if kind == "number" then return add_constant(walk, value) end
    if kind ~= "table" and kind ~= "function" or visited[value] then return end
    visited[value] = true
    return (kind == "table" and visit_table or visit_function)(walk, value)
  end
  return walk
end

local function sorted_numbers(set)
  local list = {}
  for value in next, set do list[#list + 1] = value end
  table.sort(list)
  return list
end

-- Reads the bytecode of `pick` and of the functions that it reaches.
---@param pick function
---@param env table the environment in which the policy runs
---@param subject string|nil the name of the function in messages; nil: pick
---@return loam.Diagnostic[] faults, in the order of their lines
---@return number[] constants, sorted
function scan.check(pick, env, subject)
  local walk = new_walk(pick, env, subject or "pick")
  visit_function(walk, pick, 0)
  table.sort(walk.found, function(a, b) return a.line < b.line end)
  return walk.found, sorted_numbers(walk.constants)
end

-- Instructions by which pick may ask a question, and the word for each. A call whose result pick
-- returns has no frame of its own.
local ASKING = {
  CALL = "call", CALLM = "call", ITERC = "iterate", ITERN = "iterate", TGETV = "look up",
  ISEQV = "compare", ISNEV = "compare", ISEQS = "compare", ISNES = "compare",
}

-- Returns whether no two instructions of a function, or of a function nested in it, that may ask
-- one question are on one line. Then the line where a function waits for an answer is the place.
-- (A loop calls its iterator with more variables than a call before the loop has, and a look-up
-- asks another question than a comparison, so these may share a line.)
function scan.has_line_for_each_question(f)
  local taken, pc = {}, 1
  local ins = util.funcbc(f, pc)
  while ins do
    local kind = ASKING[decode(ins).op]
    local id = kind and kind .. util.funcinfo(f, pc).currentline
    if id and taken[id] then return false end
    if id then taken[id] = true end
    pc = pc + 1
    ins = util.funcbc(f, pc)
  end
  for index = 1, util.funcinfo(f).gcconsts or 0 do
    local value = util.funck(f, -index)
    if type(value) == "proto" and not scan.has_line_for_each_question(value) then return false end
  end
  return true
end

local RETURNS = { RET1 = true, RET = true, RETM = true, CALLT = true, CALLMT = true }

-- Returns the lines on which a function itself returns a value. The value is true where a run that
-- returns there has executed no line of the policy after that line, and false where a function of
-- the policy may be the last that runs: `return f()` is a tail call.
---@return table<integer, boolean>
function scan.returns(f)
  local lines, pc = {}, 1
  local fields = {} -- register -> the name of the field that it was read from
  local ins = util.funcbc(f, pc)
  while ins do
    local i = decode(ins)
    if RETURNS[i.op] then
      local line = util.funcinfo(f, pc).currentline or 0
      local is_last = sub(i.op, 1, 4) ~= "CALL" or fields[i.a] == "or_else"
      lines[line] = is_last and lines[line] ~= false
    end
    fields[i.a] = i.op == "TGETS" and constant_string(f, i.c) or nil
    pc = pc + 1
    ins = util.funcbc(f, pc)
  end
  return lines
end

return scan
