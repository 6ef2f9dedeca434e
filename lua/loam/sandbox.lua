-- sandbox - the Lua that a policy sees: an allow-list of functions, strings with tag helpers,
-- tables that a symbol or a text can index.
--
-- This protects from mistakes, not from attackers. What LuaJIT would answer silently wrong for a
-- symbol (type, tonumber, indexing a table) is answered right here; what cannot be traced is
-- refused with what to write instead.

local condition = require("loam.condition")
local diag = require("loam.diag")
local here = require("loam.here")
local request = require("loam.request")
local site = require("loam.site")
local symbol = require("loam.symbol")
local tag = require("loam.tag")

local sandbox = {}

local MAX_TEXT = 2 ^ 16 -- bytes of a string made by string.rep

local loading = false -- the file's own run, in which tables may still be changed

-- ---- arguments

local function refuse_symbol(what, value)
  return here.refuse("text", what .. " cannot take " .. condition.text(symbol.expression(value))
    .. ": a number of the request differs from one allocation to the next",
    "compare it with numbers instead")
end

-- Whole strings for texts; symbols are refused.
local function concrete(what, ...)
  local n = select("#", ...)
  local list = { ... }
  for i = 1, n do
    local value = list[i]
    if symbol.expression(value) then refuse_symbol(what, value) end
    if site.is_text(value) then list[i] = site.value(value) end
  end
  return unpack(list, 1, n)
end

-- A library function on concrete values, failing at the policy's line.
local function lifted(what, f)
  local function returned(ok, ...)
    if ok then return ... end
    local message = ...
    if type(message) ~= "string" or here.is_final(message) then error(message, 0) end
    message = string.gsub(message, "^[^:]*:%d+: ", "")
    return here.refuse("type", (string.gsub(message, "'%?'", "'" .. what .. "'")))
  end
  return function(...)
    return returned(pcall(f, concrete(what, ...)))
  end
end

local function refuse_name(name, known)
  local reason, suggestion = diag.absent(name, known)
  return here.refuse("name", reason, suggestion)
end

-- ---- tables

local guard = {}

local sorted_numbers = setmetatable({}, { __mode = "k" }) -- guarded table -> its numeric keys

local function numbers_of(t)
  if sorted_numbers[t] then return sorted_numbers[t] end
  local numbers = {}
  for k in next, t do
    if type(k) == "number" then numbers[#numbers + 1] = k end
  end
  table.sort(numbers)
  sorted_numbers[t] = numbers
  return numbers
end

-- Forks over the numbers that are keys of the table.
local function index_by_symbol(t, key)
  local equal = symbol.equal
  for _, number in ipairs(numbers_of(t)) do
    if equal(key, number) then return rawget(t, number) end
  end
  return nil
end

function guard.__index(t, key)
  if symbol.expression(key) then return index_by_symbol(t, key) end
  if site.is_text(key) then return site.lookup(t, key) end
  return nil
end

function guard.__newindex()
  return here.refuse("write",
    "pick cannot change a table: it is run when the policy is loaded, not for each allocation",
    "keep what you compute in a local")
end

local sweep

local function sweep_upvalues(f, seen)
  for i = 1, 255 do
    local name, upvalue = debug.getupvalue(f, i)
    if not name then return end
    sweep(upvalue, seen)
  end
end

-- Guards every table that `value` leads to, through tables and the upvalues of the policy's
-- functions. Tables with a metatable are loam's own.
function sweep(value, seen)
  local kind = type(value)
  if kind ~= "table" and kind ~= "function" or seen[value] then return end
  seen[value] = true
  if kind == "function" then
    if debug.getinfo(value, "S").source == here.chunk() then sweep_upvalues(value, seen) end
  elseif not getmetatable(value) then
    setmetatable(value, guard)
    for k, v in next, value do
      sweep(k, seen)
      sweep(v, seen)
    end
  end
end

---@return table the same, guarded
function sandbox.guarded(t)
  return setmetatable(t, guard)
end

local function check_writable(what, t)
  if loading and type(t) == "table" then return end
  here.refuse("write", what .. " cannot change a table inside pick",
    "build the table once, above pick")
end

local function writer(what, f)
  local call = lifted(what, f)
  return function(t, ...)
    check_writable(what, t)
    return call(t, ...)
  end
end

-- What is iterated has to be a table of the policy's own.
local function check_iterable(what, t)
  if rawequal(t, request.req) then
    here.refuse("field", what .. " cannot go over req",
      "name the fields: req.size, req.tag and so on")
  end
  if type(t) ~= "table" then
    local kind = symbol.expression(t) and "a number" or site.is_text(t) and "a string" or type(t)
    here.refuse("type", what .. " takes a table, not " .. kind)
  end
end

-- ---- base functions

local base = { unpack = lifted("unpack", unpack), select = lifted("select", select) }

function base.type(...)
  if select("#", ...) == 0 then here.refuse("type", "type takes a value") end
  local value = ...
  if symbol.expression(value) then return "number" end
  if site.is_text(value) then return "string" end
  return type(value)
end

function base.tonumber(value, radix)
  if symbol.expression(value) then
    if rawequal(radix, nil) or rawequal(radix, 10) then return value end
    return refuse_symbol("tonumber with a base", value)
  end
  if site.is_text(value) then value = site.value(value) end
  return tonumber(value, radix)
end

local WORD = { ["nil"] = true, boolean = true, number = true, string = true }

function base.tostring(value)
  value = concrete("tostring", value)
  if WORD[type(value)] then return tostring(value) end
  return here.refuse("text", "a " .. type(value) .. " has no text that stays the same",
    "write the words you want as a string")
end

function base.ipairs(t)
  check_iterable("ipairs", t)
  return ipairs(t)
end

function base.pairs(t)
  check_iterable("pairs", t)
  return next, t, nil
end

function base.next(t, key)
  check_iterable("next", t)
  return next(t, (concrete("next", key)))
end

function base.error(message)
  message = concrete("error", message)
  return here.refuse("error", type(message) == "string" and message
    or "error was called with a " .. type(message) .. " value")
end

function base.assert(value, message, ...)
  if value then return value, message, ... end
  return base.error(rawequal(message, nil) and "assertion failed" or message)
end

-- ---- libraries

local function copy_lifted(library, source, names)
  local out = {}
  for name in string.gmatch(names, "%w+") do
    out[name] = lifted(library .. "." .. name, source[name])
  end
  return out
end

local maths = copy_lifted("math", math, "sqrt exp log fmod modf")
maths.huge, maths.pi = math.huge, math.pi

local function rounding(name)
  local native = math[name]
  local checked = lifted("math." .. name, native)
  maths[name] = function(value)
    if type(value) == "number" then return native(value) end
    if symbol.expression(value) then return symbol[name](value) end
    return checked(value)
  end
end
rounding("floor")
rounding("ceil")
rounding("abs")

local function extreme(name)
  local native, traced = lifted("math." .. name, math[name]), symbol[name]
  maths[name] = function(first, ...)
    local result = first
    for i = 1, select("#", ...) do
      local value = select(i, ...)
      if symbol.expression(result) or symbol.expression(value) then
        result = traced(result, value)
      else
        result = native(result, value)
      end
    end
    return symbol.expression(result) and result or native(result)
  end
end
extreme("min")
extreme("max")

local strings = copy_lifted("string", string, "byte char len lower reverse sub upper")

-- A table's text would be its address.
strings.format = lifted("string.format", function(form, ...)
  for i = 1, select("#", ...) do
    local kind = type((select(i, ...)))
    if kind == "table" or kind == "function" then
      error("string.format cannot show a " .. kind, 0)
    end
  end
  return string.format(form, ...)
end)

strings.rep = lifted("string.rep", function(text, n)
  if type(n) == "number" and #text * n > MAX_TEXT then
    error("string.rep makes at most " .. MAX_TEXT .. " bytes", 0)
  end
  return string.rep(text, n)
end)

local tables = {
  concat = lifted("table.concat", table.concat),
  maxn = lifted("table.maxn", table.maxn),
  insert = writer("table.insert", table.insert),
  remove = writer("table.remove", table.remove),
  sort = writer("table.sort", table.sort),
}

-- ---- methods of strings

local methods = {}

for name, f in pairs(strings) do methods[name] = f end

for _, name in ipairs { "under", "is", "glob" } do
  local question = tag[name]
  methods[name] = function(text, about)
    if type(about) ~= "string" then about = tag.argument(name, (concrete(":" .. name, about))) end
    return question(text, about)
  end
end

function methods.part(text, index)
  return tag.part(text, tag.index(index))
end

local METHODS = { "under", "is", "glob", "part", "sub", "lower", "upper", "len", "byte", "format",
                  "rep", "reverse" }

local PATTERNS = { find = true, match = true, gmatch = true, gsub = true }

local function method(name)
  local found = rawget(methods, name)
  if found then return found end
  if PATTERNS[name] then refuse_name("string." .. name, METHODS) end
  return here.refuse_word("field", "a string has no method '" .. tostring(name) .. "'", name,
    METHODS)
end

site.connect(method)

setmetatable(methods, {
  __index = function(_, name) return method((concrete("a string's index", name))) end,
})

-- ---- the environment

local function names_of(env)
  local names = {}
  for name in next, env do
    if type(name) == "string" then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

local function library(name, members)
  local known = names_of(members)
  return setmetatable(members, {
    __index = function(_, field)
      return refuse_name(name .. "." .. tostring(field), known)
    end,
    __newindex = function() return here.refuse("write", name .. " cannot be changed") end,
  })
end

library("math", maths)
library("string", strings)
library("table", tables)

local function undefined(env)
  return function(_, name) return refuse_name(tostring(name), names_of(env)) end
end

---@return table a fresh environment in which a policy runs
function sandbox.new(loam)
  local env = {}
  for name, f in pairs(base) do env[name] = f end
  env.math, env.string, env.table, env.loam = maths, strings, tables, loam
  setmetatable(env, {
    __index = undefined(env),
    __newindex = function(_, name, value)
      if not loading then
        here.refuse("write", "pick cannot define the global '" .. tostring(name) .. "'",
          "write `local`")
      end
      rawset(env, name, value)
    end,
  })
  return env
end

---@return string[] every global that a policy may name
function sandbox.names(env)
  return names_of(env)
end

-- Calls the policy's `f`; its strings have the sandbox's methods meanwhile. An error leaves
-- through here.leave or the next sandbox.reset.
function sandbox.call(f, ...)
  here.enter(methods)
  local first = f(...)
  here.leave()
  return first
end

function sandbox.load(f)
  loading = true
  local first = sandbox.call(f)
  loading = false
  return first
end

function sandbox.is_loading() return loading end

-- After an error: the trusted code's strings again, and tables closed.
function sandbox.reset()
  here.leave()
  loading = false
end

-- Ends the time in which the policy's tables may change. `roots` are its functions and tables.
function sandbox.seal(env, ...)
  local seen = { [env] = true }
  for _, f in next, base do seen[f] = true end
  for _, value in next, env do sweep(value, seen) end
  for i = 1, select("#", ...) do sweep((select(i, ...)), seen) end
end

return sandbox
