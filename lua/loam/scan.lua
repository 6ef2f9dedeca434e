-- scan - what the bytecode of `pick` shows before it runs: writes, tables built, words misspelt.
--
-- Tracing sees what a policy does on the paths it takes; this reads all of its instructions. It
-- goes through `pick`, the functions nested in it, and the policy's other functions that it can
-- reach by upvalues, globals and constant tables. On the way it gathers the numeric constants of
-- all these, near which a traced plan is compared with plain Lua.

local diag = require("loam.diag")
local util = require("jit.util")
local vmdef = require("jit.vmdef")

local gsub, match, sub = string.gsub, string.match, string.sub
local floor = math.floor

local scan = {}

local MAX_TABLES = 2000
local MAX_CONSTANTS = 2000

local FIELDS = {
  "tag", "file", "func", "module", "line", "size", "align", "zero", "node", "device", "live",
}

-- ---- words that a policy has not

local TAG_HELPERS = 'patterns can run away; use req.tag:under"a.b", :is"a.b", :glob"a.*", :part(1)'
local MATCHES = "a policy sees the request only; patterns of its strings are not offered"

-- Names that people try, and what to do instead.
local ABSENT = {
  print = "error(text) stops the load and shows the text; loam explain shows how a request is decided",
  pcall = "a fault refuses the policy, and the last good one stays live: nothing needs catching",
  require = "a policy is one file, read whole",
  setmetatable = "plain tables and functions do; helpers that a policy needs are on req.tag",
  coroutine = "plain functions do",
  os = "a policy sees the request only: time and environment are not among it",
  io = "a policy is one file; put its tables in it",
  debug = "loam explain and loam plan show how a policy decides",
  ffi = "a policy is plain Lua",
  rawget = "index the table: t.key",
  load = "a policy is one file, read whole",
  string = MATCHES,
  ["math.random"] = "a policy is compiled to a table: the same request has to get the same answer",
  ["string.find"] = TAG_HELPERS,
}

local SAME = {
  xpcall = "pcall", dofile = "require", loadfile = "load", loadstring = "load", module = "require",
  package = "require", getmetatable = "setmetatable", newproxy = "setmetatable", jit = "ffi",
  bit = "ffi", rawset = "rawget", rawequal = "rawget", rawlen = "rawget", collectgarbage = "ffi",
  getfenv = "setmetatable", setfenv = "setmetatable", ["math.randomseed"] = "math.random",
  ["string.match"] = "string.find", ["string.gmatch"] = "string.find",
  ["string.gsub"] = "string.find", ["string.dump"] = "load",
}

-- A name that a policy does not have: `name` may be "math.foor"; `known` are the names there are.
---@param known string[]
---@return table fields of a diagnostic, without its line
function scan.unknown(name, known)
  local hint = ABSENT[SAME[name] or name]
  if hint then
    return { class = "name", reason = "'" .. name .. "' is not offered to a policy", suggestion = hint }
  end
  local nearest = diag.suggest(match(name, "[^.]*$"), known)
  return {
    class = "name", reason = "there is no '" .. name .. "' in a policy",
    suggestion = nearest and "did you mean '" .. gsub(name, "[^.]*$", "") .. nearest .. "'?" or nil,
  }
end

-- ---- instructions

local function opcode(ins)
  return (gsub(sub(vmdef.bcnames, ins % 256 * 6 + 1, ins % 256 * 6 + 6), " ", ""))
end

-- Fields of a 32-bit instruction: op, A, then C and B, or D over both.
local function decode(ins)
  ins = ins % 2 ^ 32
  local d = floor(ins / 65536)
  return { op = opcode(ins), a = floor(ins / 256) % 256, b = floor(d / 256), c = d % 256, d = d }
end

local function constant_string(f, index)
  local value = util.funck(f, -index - 1)
  return type(value) == "string" and value or nil
end

-- ---- the walk

---@class loam.Scan
---@field found loam.Diagnostic[]
---@field constants table<number, boolean>
---@field globals table<string, any>
---@field source string chunk of the policy

local function report(walk, line, fields)
  local key = line .. fields.class .. fields.reason
  if walk.seen[key] then return end
  walk.seen[key] = true
  fields.line = line
  walk.found[#walk.found + 1] = diag.new(fields)
end

local function add_constant(walk, value)
  if value ~= value or walk.constants[value] or walk.constant_n >= MAX_CONSTANTS then return end
  walk.constants[value] = true
  walk.constant_n = walk.constant_n + 1
end

local function sorted_names(t)
  local names = {}
  for name in next, t do
    if type(name) == "string" then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

local function written(walk, line, what)
  report(walk, line, {
    class = "write", reason = "pick writes to " .. what .. ", which outlives the request",
    suggestion = "pick may set its own local variables only: its answer has to depend on req alone",
  })
end

local READ = {} -- opcode -> function(walk, unit, instruction, line)

local function built(walk, unit, i, line)
  unit.fresh[i.a] = true
  report(walk, line, {
    class = "table", reason = "pick builds a table",
    suggestion = "make the table once, above pick, and let pick read it",
  })
end

READ.TNEW, READ.TDUP = built, built

-- Filling a table that pick has just built is part of building it.
local function stored(register)
  return function(walk, unit, i, line)
    local table_at = register(i)
    if unit.fresh[table_at] then return end
    written(walk, line, "a table")
  end
end

local function in_b(i) return i.b end
READ.TSETV, READ.TSETS, READ.TSETB, READ.TSETR = stored(in_b), stored(in_b), stored(in_b), stored(in_b)
READ.TSETM = stored(function(i) return i.a - 1 end)

function READ.GSET(walk, unit, i, line)
  written(walk, line, "the global '" .. (constant_string(unit.f, i.d) or "?") .. "'")
end

-- A nested function may write the locals of the function around it: they end with the request.
local function upvalue_set(walk, unit, i, line)
  local name = util.funcuvname(unit.f, i.a) or "?"
  if unit.outer and not unit.outer[name] then return end
  written(walk, line, "'" .. name .. "', a local variable outside it")
end

READ.USETV, READ.USETS, READ.USETN, READ.USETP = upvalue_set, upvalue_set, upvalue_set, upvalue_set

function READ.GGET(walk, unit, i, line)
  local name = constant_string(unit.f, i.d)
  if not name then return end
  local value = walk.globals[name]
  if value == nil then
    report(walk, line, scan.unknown(name, sorted_names(walk.globals)))
  end
  unit.library = type(value) == "table" and { name = name, register = i.a, pc = unit.pc } or nil
  walk.visit(value)
end

function READ.TGETS(walk, unit, i, line)
  local field = constant_string(unit.f, i.c)
  local from = unit.library
  if from and from.register == i.b and from.pc == unit.pc - 1 then
    local library = walk.globals[from.name]
    if rawget(library, field) == nil and getmetatable(library) == nil then
      report(walk, line, scan.unknown(from.name .. "." .. field, sorted_names(library)))
    end
  elseif i.b == unit.request and not walk.is_field[field] then
    local nearest = diag.suggest(field, FIELDS)
    report(walk, line, {
      class = "field", reason = "req has no field '" .. field .. "'",
      suggestion = nearest and "did you mean 'req." .. nearest .. "'?"
        or "req has " .. table.concat(FIELDS, ", "),
    })
  end
end

function READ.KSHORT(walk, _, i)
  add_constant(walk, i.d < 32768 and i.d or i.d - 65536)
end

function READ.TGETB(walk, _, i) add_constant(walk, i.c) end

-- Operations whose A is no destination, by their first two letters; two of them copy as they test.
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
  -- funcinfo is dear: the line is asked for only where something may be said.
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

-- One function or prototype. `outer` names the upvalues of the function it is nested in.
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

local function new_walk(pick, globals)
  local walk = {
    found = {}, constants = {}, constant_n = 0, globals = globals, seen = {}, table_n = 0,
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

-- `globals` holds what a policy may read as a global, by name. The numbers come sorted.
---@param pick function
---@param globals table<string, any>
---@return loam.Diagnostic[] found
---@return number[] constants
function scan.check(pick, globals)
  local walk = new_walk(pick, globals)
  visit_function(walk, pick, 0)
  return walk.found, sorted_numbers(walk.constants)
end

return scan
