-- dsl.lua - the table `loam`: constructors of strategies, units, gauges, and loam.policy.

local frame = require("loam.report.frame")
local options = require("loam.language.options")
local ordered = require("loam.language.ordered")
local request = require("loam.symbolic.request")
local sandbox = require("loam.language.sandbox")
local strategy = require("loam.language.strategy")
local symbol = require("loam.symbolic.symbol")

local dsl = {}

local loam = { KiB = 2 ^ 10, MiB = 2 ^ 20, GiB = 2 ^ 30, TiB = 2 ^ 40 }

-- ---- strategies

local function check_loading(what)
  if sandbox.is_loading() then return end
  frame.refuse("write", what .. " inside pick makes a strategy for each request",
    "make it once, above pick, as a local")
end

-- Refuses `loam:host{…}`, which calls loam.host with the table loam in place of the options.
local function check_dot(word, given)
  if not rawequal(given, loam) then return end
  frame.refuse("type", "loam:" .. word .. " passes loam itself",
    "write a dot: loam." .. word .. (word == "node" and "(0)" or "{ … }"))
end

local function constructor(kind)
  return function(given)
    local what = "loam." .. kind
    check_loading(what)
    check_dot(kind, given)
    if given == nil then given = {} end
    if type(given) ~= "table" then
      frame.refuse("type", what .. " takes a table of options, not a " .. type(given),
        "write " .. what .. "{ name = \"…\" }")
    end
    return strategy.declare(kind, given)
  end
end

local KINDS = { "host", "system", "pinned", "device", "managed", "shared", "file", "deny" }

for _, kind in ipairs(KINDS) do
  loam[kind] = constructor(kind)
end

local MAX_HANDLER = 126

function loam.handler(given)
  check_loading("loam.handler")
  check_dot("handler", given)
  local rest, name = {}, given
  if type(given) == "table" then
    name = rawget(given, 1)
    for option, value in next, given do
      if option ~= 1 then rest[option] = value end
    end
  end
  if type(name) ~= "string" or name == "" or #name > MAX_HANDLER then
    frame.refuse("type",
      "loam.handler takes the name of a handler, 1 to " .. MAX_HANDLER .. " bytes",
      "write loam.handler\"name\"")
  end
  return strategy.declare("handler", rest, name)
end

-- ---- the machine

local asks_machine = false

---@return boolean whether the policy has asked for the nodes or devices of this machine, so that it
--- may decide otherwise on another machine
function dsl.asks_machine() return asks_machine end

-- Forgets the questions of a policy, before another one is opened.
function dsl.reset() asks_machine = false end

-- Makes loam.nodes and loam.devices. `source()` gives a list; while the file runs, the policy gets
-- a copy that it may change, and in pick it gets one that is guarded.
local function list(source)
  local frozen, of
  return function()
    asks_machine = true
    local now = source()
    local copy = { unpack(now) }
    if sandbox.is_loading() then return copy end
    if of ~= now then frozen, of = sandbox.guarded(copy), now end
    return frozen
  end
end

local function nodes() return options.machine().nodes end

loam.nodes = list(nodes)
loam.devices = list(options.device_list)

-- Makes the object that loam.node(n) or loam.device(n) returns: `free` is a gauge, the fields of
-- `constants` do not change while a policy is live.
local function place(input, n, constants)
  local what = input == "node_free" and "loam.node(n)" or "loam.device(n)"
  local known = { "free" }
  for field in pairs(constants) do known[#known + 1] = field end
  table.sort(known)
  return setmetatable({}, {
    __index = function(_, field)
      if field == "free" then return request.gauge(input, n) end
      if constants[field] ~= nil then
        asks_machine = true
        return constants[field]
      end
      return frame.refuse_word("field", what .. " has no field '" .. tostring(field) .. "'", field,
        known)
    end,
    __newindex = function() return frame.refuse("write", what .. " cannot be changed") end,
  })
end

-- Stands for a node or device that this machine does not have: it has no free memory.
local NOWHERE = setmetatable({}, {
  __index = function(_, field) return field ~= "cpus" and 0 end,
  __newindex = function() return frame.refuse("write", "free memory cannot be assigned") end,
})

local function is_in(numbers, n)
  for _, number in ipairs(numbers) do
    if number == n then return true end
  end
  return false
end

-- Makes the functions loam.node(n) and loam.device(n). If `n` is a number of the request, pick
-- forks over the numbers of this machine; any other number (a CPU's node may have no memory) gives
-- NOWHERE. `check(n)` refuses a constant that is not a number of this machine.
local function places(input, list_numbers, constants_of, check)
  local made = {}
  local function at(n)
    made[n] = made[n] or place(input, n, constants_of(n))
    return made[n]
  end
  return function(n)
    local numbers = list_numbers()
    if symbol.expression(n) then
      asks_machine = true
      for _, number in ipairs(numbers) do
        if symbol.equal(n, number) then return at(number) end
      end
      return NOWHERE
    end
    if is_in(numbers, n) then return at(n) end
    check_dot("node", n)
    if request.is_concrete() then return NOWHERE end
    return check(n)
  end
end

-- The fields of loam.node(n) that do not change while a policy is live.
local function constants_of_node(n)
  local machine = options.machine()
  return { total = machine.totals and machine.totals[n] or 0,
           cpus = not machine.cpus or machine.cpus[n] ~= false }
end

loam.node = places("node_free", nodes, constants_of_node, function(n)
  return options.check_node("loam.node", n)
end)

local function none() return {} end

local device_gauge = places("device_free", options.device_list, none, function(n)
  if type(n) ~= "number" or n < 0 or n ~= math.floor(n) then
    frame.refuse("type", "loam.device takes a device number from 0")
  end
  return frame.refuse("machine", "device " .. n .. ": " .. options.devices_text(),
    "loam.devices() lists the devices of this machine")
end)

local device_strategy = loam.device

-- loam.device{…} makes a strategy; loam.device(n) gives an object with .free.
function loam.device(given)
  return (type(given) == "table" and device_strategy or device_gauge)(given)
end

-- Returns the percentage of the last ten seconds in which the control group waited for memory.
function loam.pressure(...)
  if select("#", ...) > 0 then
    frame.refuse("type", "loam.pressure takes no argument: it is about the control group of the "
      .. "program", "write loam.pressure()")
  end
  return request.pressure()
end

-- ---- the policy

local KEYS = { "name", "pick", "tests", "always", "apply" }
local APPLY = { "new", "live" }

-- Checks `apply`: whether a reload decides about new memory only, or also moves the live memory to
-- where the policy now wants it.
local function check_apply(apply)
  if apply == nil or is_in(APPLY, apply) then return end
  frame.refuse_word("policy", "apply = " .. options.show(apply) .. ": must be \"new\" (a reload is "
    .. "for new memory) or \"live\" (a reload also moves live memory)", apply, APPLY)
end

local policies = {} -- object that loam.policy returned -> the checked table of the policy

local function check_type(given, key, wanted, example)
  local value = rawget(given, key)
  if value ~= nil and type(value) ~= wanted then
    frame.refuse("policy", key .. " is a " .. type(value) .. ": must be a " .. wanted,
      "write " .. example)
  end
end

function loam.policy(given)
  check_loading("loam.policy")
  check_dot("policy", given)
  if type(given) ~= "table" then
    frame.refuse("policy", "loam.policy takes a table, not " .. options.show(given),
      "write loam.policy{ pick = … }")
  end
  for key in ordered.pairs(given, false) do
    if type(key) ~= "string" or not is_in(KEYS, key) then
      frame.refuse_word("policy", "loam.policy has no '" .. tostring(key) .. "'", key, KEYS)
    end
  end
  check_type(given, "name", "string", "name = \"production\"")
  if rawget(given, "name") then options.name("name", given.name) end
  check_apply(rawget(given, "apply"))
  check_type(given, "pick", "function", "pick = function(req) … end")
  check_type(given, "tests", "table", "tests = { { tag = \"log\", size = 100, expect = scratch } }")
  check_type(given, "always", "table", "always = { [\"what holds\"] = function(req, got) … end }")
  if rawget(given, "pick") == nil then
    frame.refuse("policy", "loam.policy needs pick",
      "write pick = function(req) return strategy end")
  elseif not frame.is_own(given.pick) then
    frame.refuse("policy", "pick is a function of loam or of Lua: must be a function of this file",
      "write pick = function(req) return strategy end")
  end
  local policy = setmetatable({}, { __newindex = function()
    return frame.refuse("write", "a policy cannot be changed after loam.policy returned it")
  end })
  policies[policy] = { name = given.name, pick = given.pick, tests = given.tests or {},
                       always = given.always or {}, apply = given.apply or "new",
                       line = frame.line() }
  return policy
end

---@return table|nil { name, pick, tests, always, apply, line }; nil: not made by loam.policy
function dsl.policy(value)
  return value ~= nil and policies[value] or nil
end

-- ---- the table

local known = {}
for word in pairs(loam) do known[#known + 1] = word end
table.sort(known)

setmetatable(loam, {
  __index = function(_, word)
    return frame.refuse_word("field", "loam has no '" .. tostring(word) .. "'", word, known)
  end,
  __newindex = function() return frame.refuse("write", "loam cannot be changed") end,
})

dsl.loam = loam

return dsl
