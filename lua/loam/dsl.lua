-- dsl - the words of a policy: the table `loam`.

local here = require("loam.here")
local options = require("loam.options")
local request = require("loam.request")
local sandbox = require("loam.sandbox")
local strategy = require("loam.strategy")
local symbol = require("loam.symbol")

local dsl = {}

local loam = { KiB = 2 ^ 10, MiB = 2 ^ 20, GiB = 2 ^ 30, TiB = 2 ^ 40 }

-- ---- strategies

local function check_loading(what)
  if sandbox.is_loading() then return end
  here.refuse("write", what .. " inside pick makes a strategy for each request",
    "make it once, above pick, as a local")
end

local function constructor(kind)
  return function(given)
    local what = "loam." .. kind
    check_loading(what)
    if given == nil then given = {} end
    if type(given) ~= "table" then
      here.refuse("type", what .. " takes a table of options, not a " .. type(given),
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
  local rest, name = {}, given
  if type(given) == "table" then
    name = rawget(given, 1)
    for option, value in next, given do
      if option ~= 1 then rest[option] = value end
    end
  end
  if type(name) ~= "string" or name == "" or #name > MAX_HANDLER then
    here.refuse("type",
      "loam.handler takes the name of a handler, 1 to " .. MAX_HANDLER .. " bytes",
      "write loam.handler\"name\"")
  end
  return strategy.declare("handler", rest, name)
end

-- ---- the machine

local function list(source)
  local frozen, of
  return function()
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

local function place(input, n, constants)
  local known = { "free" }
  for field in pairs(constants) do known[#known + 1] = field end
  table.sort(known)
  return setmetatable({}, {
    __index = function(_, field)
      if field == "free" then return request.gauge(input, n) end
      if constants[field] ~= nil then return constants[field] end
      return here.refuse_word("field", "it has no field '" .. tostring(field) .. "'", field, known)
    end,
    __newindex = function() return here.refuse("write", "what a machine has is only read") end,
  })
end

-- Where nothing is known, nothing is free.
local NOWHERE = setmetatable({}, {
  __index = function(_, field) return field ~= "cpus" and 0 end,
  __newindex = function() return here.refuse("write", "free memory is only read") end,
})

local function is_in(numbers, n)
  for _, number in ipairs(numbers) do
    if number == n then return true end
  end
  return false
end

-- loam.node(n) and loam.device(n). A number of the request forks over those there are; for others
-- (a CPU's node may have no memory) nothing is free. `check` refuses a constant that is not there.
local function places(input, list_numbers, constants_of, check)
  local made = {}
  local function at(n)
    made[n] = made[n] or place(input, n, constants_of(n))
    return made[n]
  end
  return function(n)
    local numbers = list_numbers()
    if symbol.expression(n) then
      for _, number in ipairs(numbers) do
        if symbol.equal(n, number) then return at(number) end
      end
      return NOWHERE
    end
    if is_in(numbers, n) then return at(n) end
    if request.is_concrete() then return NOWHERE end
    return check(n)
  end
end

-- What does not change while a policy is live.
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
    here.refuse("type", "loam.device takes a device number from 0")
  end
  return here.refuse("machine", "device " .. n .. ": " .. options.devices_text(),
    "loam.devices() lists what there is")
end)

local device_strategy = loam.device

-- loam.device{…} is a strategy, loam.device(n) a place with .free.
function loam.device(given)
  return (type(given) == "table" and device_strategy or device_gauge)(given)
end

-- ---- the policy

local KEYS = { "name", "pick", "tests", "always", "apply" }
local APPLY = { "new", "live" } -- when a reload is for memory to come, or for what lives too

-- Whether a reload brings live memory to where the policy wants it.
local function check_apply(apply)
  if apply == nil or is_in(APPLY, apply) then return end
  here.refuse_word("policy", "apply is " .. options.show(apply)
    .. "; it has to be \"new\" (memory to come) or \"live\" (what lives as well)", apply, APPLY)
end

local policies = {} -- what loam.policy returned -> its table

local function check_type(given, key, wanted, example)
  local value = rawget(given, key)
  if value ~= nil and type(value) ~= wanted then
    here.refuse("policy", key .. " is a " .. type(value) .. "; it has to be a " .. wanted,
      "write " .. example)
  end
end

function loam.policy(given)
  check_loading("loam.policy")
  if type(given) ~= "table" then
    here.refuse("policy", "loam.policy takes a table, not " .. options.show(given),
      "write loam.policy{ pick = … }")
  end
  for key in next, given do
    if type(key) ~= "string" or not is_in(KEYS, key) then
      here.refuse_word("policy", "loam.policy has no '" .. tostring(key) .. "'", key, KEYS)
    end
  end
  check_type(given, "name", "string", "name = \"production\"")
  if rawget(given, "name") then options.name("name", given.name) end
  check_apply(rawget(given, "apply"))
  check_type(given, "pick", "function", "pick = function(req) … end")
  check_type(given, "tests", "table", "tests = { { tag = \"log\", size = 100, expect = scratch } }")
  check_type(given, "always", "table", "always = { [\"what holds\"] = function(req, got) … end }")
  if rawget(given, "pick") == nil then
    here.refuse("policy", "loam.policy needs pick",
      "write pick = function(req) return strategy end")
  end
  local policy = setmetatable({}, { __newindex = function()
    return here.refuse("write", "a policy cannot be changed once made")
  end })
  policies[policy] = { name = given.name, pick = given.pick, tests = given.tests or {},
                       always = given.always or {}, apply = given.apply or "new",
                       line = here.line() }
  return policy
end

---@return table|nil { name, pick, tests, always, apply, line } of what loam.policy returned
function dsl.policy(value)
  return value ~= nil and policies[value] or nil
end

-- ---- the table

local known = {}
for word in pairs(loam) do known[#known + 1] = word end
table.sort(known)

setmetatable(loam, {
  __index = function(_, word)
    return here.refuse_word("field", "loam has no '" .. tostring(word) .. "'", word, known)
  end,
  __newindex = function() return here.refuse("write", "loam cannot be changed") end,
})

dsl.loam = loam

return dsl
