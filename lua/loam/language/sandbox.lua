-- sandbox.lua - the Lua that a policy sees: an allow-list of functions, strings with the methods of
-- tags, and tables that a symbol or a text can index.
--
-- The sandbox protects from mistakes, not from attackers. Some functions of LuaJIT give a wrong
-- answer for a symbol without an error (type, tonumber, indexing a table); the sandbox replaces
-- them by functions that answer correctly. It refuses whatever cannot be traced, and says what to
-- write.

local condition = require("loam.symbolic.condition")
local diag = require("loam.report.diag")
local frame = require("loam.report.frame")
local ordered = require("loam.language.ordered")
local request = require("loam.symbolic.request")
local site = require("loam.symbolic.site")
local symbol = require("loam.symbolic.symbol")
local tag = require("loam.symbolic.tag")

local sandbox = {}

local MAX_TEXT = 2 ^ 16 -- bytes of a string made by string.rep

local loading = false -- true while the file itself runs, when it may still change its tables

-- ---- arguments

-- What to write in place of a function that takes no number of the request.
local INSTEAD = {
  ["math.fmod"] = "write a % b", ["math.modf"] = "write math.floor(x)",
  ["math.sqrt"] = "write x ^ 0.5", ["math.log"] = "write x > 2 ^ 12 for math.log(x, 2) > 12",
}

local function refuse_symbol(what, value)
  return frame.refuse("text", what .. " cannot take " .. condition.text(symbol.expression(value))
    .. ": a number of the request differs from one allocation to the next",
    INSTEAD[what] or "compare it with numbers instead")
end

-- Returns the arguments. Refuses symbols and texts.
local function concrete(what, ...)
  local n = select("#", ...)
  for i = 1, n do
    local value = select(i, ...)
    if symbol.expression(value) then refuse_symbol(what, value) end
    if site.is_text(value) then site.refuse(value, what) end
  end
  return ...
end

-- Like concrete, for a function that passes its other arguments on.
local function first_concrete(what, first, ...)
  return concrete(what, first), ...
end

-- Makes a library function that refuses symbols and texts, and raises its errors at the policy's
-- line.
---@param check function|nil of the arguments; concrete where it is left out
local function lifted(what, f, check)
  local function returned(ok, ...)
    if ok then return ... end
    local message = ...
    if type(message) ~= "string" or frame.is_final(message) then error(message, 0) end
    message = string.gsub(message, "^[^:]*:%d+: ", "")
    return frame.refuse("type", (string.gsub(message, "'%?'", "'" .. what .. "'")))
  end
  return function(...)
    return returned(pcall(f, (check or concrete)(what, ...)))
  end
end

local function refuse_name(name, known)
  local reason, suggestion = diag.explain_missing(name, known)
  return frame.refuse("name", reason, suggestion)
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

-- Looks up a symbol: forks over the numbers that are keys of the table.
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
  return frame.refuse("write",
    "pick cannot change a table: it is run when the policy is loaded, not for each allocation",
    "store the result in a local variable")
end

local function visit_upvalues(f, visit)
  for i = 1, 255 do
    local name, upvalue = debug.getupvalue(f, i)
    if not name then return end
    visit(upvalue)
  end
end

-- Gives the guard to every table that can be reached from `first` through tables and the upvalues
-- of the policy's functions. Tables that have a metatable already are loam's own. What is still to
-- be visited is in a list: a recursion would overflow Lua's stack at a long chain of tables.
local function sweep(first, seen)
  local waiting = {}
  local function visit(value)
    local kind = type(value)
    if kind ~= "table" and kind ~= "function" or seen[value] then return end
    seen[value] = true
    waiting[#waiting + 1] = value
  end
  visit(first)
  while #waiting > 0 do
    local value = table.remove(waiting)
    if type(value) == "function" then
      if debug.getinfo(value, "S").source == frame.chunk() then visit_upvalues(value, visit) end
    elseif not getmetatable(value) then
      setmetatable(value, guard)
      for k, v in next, value do
        visit(k)
        visit(v)
      end
    end
  end
end

---@return table `t` itself, with the guard as its metatable
function sandbox.guarded(t)
  return setmetatable(t, guard)
end

local function check_writable(what, t)
  if loading and type(t) == "table" then return end
  frame.refuse("write", what .. " cannot change a table inside pick",
    "build the table once, above pick")
end

-- Refuses a position outside the list: table.insert of LuaJIT would move every index between the
-- position and the end of the list, in one C call that no budget can interrupt.
local function insert(t, ...)
  local at = ...
  if select("#", ...) < 2 then return table.insert(t, ...) end
  local last = #t + 1
  if type(at) ~= "number" or not (at >= 1 and at <= last) then
    error(("table.insert takes a position from 1 to %d here, not %s"):format(last, tostring(at)), 0)
  end
  return table.insert(t, ...)
end

-- Compares with bytecode, which the hook of the time budget interrupts. The comparison that
-- table.sort has runs in C, and one sort of a list of long strings took half a minute.
local function less(a, b) return a < b end

local function sort(t, before) return table.sort(t, before or less) end

local function writer(what, f)
  local call = lifted(what, f)
  return function(t, ...)
    check_writable(what, t)
    return call(t, ...)
  end
end

-- Refuses to iterate over anything but a table of the policy.
local function check_iterable(what, t)
  if rawequal(t, request.req) then
    frame.refuse("field", what .. " cannot go over req",
      "name the fields: req.size, req.tag and so on")
  end
  if type(t) ~= "table" then
    local kind = symbol.expression(t) and "a number" or site.is_text(t) and "a string" or type(t)
    frame.refuse("type", what .. " takes a table, not " .. kind,
      "write " .. what .. " { \"a\", \"b\" }, or a table that was made above pick")
  end
end

-- ---- base functions

local base = {
  unpack = lifted("unpack", unpack), select = lifted("select", select, first_concrete),
}

function base.type(...)
  if select("#", ...) == 0 then frame.refuse("type", "type takes a value") end
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
  if site.is_text(value) then site.refuse(value, "tonumber") end
  return tonumber(value, radix)
end

local WORD = { ["nil"] = true, boolean = true, number = true, string = true }

function base.tostring(value)
  value = concrete("tostring", value)
  if WORD[type(value)] then return tostring(value) end
  return frame.refuse("text", "a " .. type(value) .. " has another text at each load",
    "write the text as a string")
end

function base.ipairs(t)
  check_iterable("ipairs", t)
  return ipairs(t)
end

local function is_constant(t) return rawequal(getmetatable(t), guard) end

function base.pairs(t)
  check_iterable("pairs", t)
  return ordered.pairs(t, is_constant(t))
end

function base.next(t, key)
  check_iterable("next", t)
  return ordered.next(t, concrete("next", key), is_constant(t))
end

function base.error(message)
  message = concrete("error", message)
  if type(message) == "string" then return frame.refuse("error", message) end
  return frame.refuse("error", "error was called with "
    .. (rawequal(message, nil) and "no text" or "a " .. type(message) .. ", not with text"),
    "write error(\"text\")")
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

-- string.format refuses tables and functions, whose text would be an address.
strings.format = lifted("string.format", function(form, ...)
  for i = 1, select("#", ...) do
    local kind = type((select(i, ...)))
    if kind == "table" or kind == "function" then
      error("string.format cannot show a " .. kind, 0)
    end
  end
  return string.format(form, ...)
end)

-- string.rep takes numbers for strings, and strings for numbers, as Lua's does.
strings.rep = lifted("string.rep", function(text, n, between)
  local bytes = #tostring(text) + #tostring(between or "")
  if bytes * (tonumber(n) or 0) > MAX_TEXT then
    error("string.rep makes at most " .. MAX_TEXT .. " bytes", 0)
  end
  return string.rep(text, n, between or "")
end)

local tables = {
  concat = lifted("table.concat", table.concat),
  maxn = lifted("table.maxn", table.maxn),
  insert = writer("table.insert", insert),
  remove = writer("table.remove", table.remove),
  sort = writer("table.sort", sort),
}

-- ---- methods of strings

local methods = {}

for name, f in pairs(strings) do methods[name] = f end

for _, name in ipairs { "under", "is", "glob" } do
  local question = tag[name]
  methods[name] = function(text, about, ...)
    if type(about) ~= "string" or select("#", ...) > 0 then
      about = tag.argument(name, (concrete(":" .. name, about)), ...)
    end
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
  return frame.refuse_word("field", "a string has no method '" .. tostring(name) .. "'", name,
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
    __newindex = function() return frame.refuse("write", name .. " cannot be changed") end,
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
        frame.refuse("write", "pick cannot define the global '" .. tostring(name) .. "'",
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

-- Calls a function of the policy, which sees strings with the sandbox's methods, and returns its
-- first two results. After an error, frame.leave or sandbox.reset gives strings Lua's methods back.
function sandbox.call(f, ...)
  frame.enter(methods)
  local first, second = f(...)
  frame.leave()
  return first, second
end

function sandbox.load(f)
  loading = true
  local first = sandbox.call(f)
  loading = false
  return first
end

function sandbox.is_loading() return loading end

-- Ends a run of the policy, also after an error: strings have Lua's methods again, and the policy
-- may not change its tables.
function sandbox.reset()
  frame.leave()
  loading = false
end

-- Guards every table that the policy's globals, and the functions and tables given after `env`,
-- lead to: from now on the policy cannot change them.
function sandbox.seal(env, ...)
  local seen = { [env] = true }
  for _, f in next, base do seen[f] = true end
  for _, value in next, env do sweep(value, seen) end
  for i = 1, select("#", ...) do sweep((select(i, ...)), seen) end
end

return sandbox
