-- strategy.lua - strategies as a policy holds them: results of constructors, and `or_else` chains.
--
-- A chain is a list of members that are tried in order; a single strategy is a chain of one member.
-- Equal descriptions are one object, so that `==` and table keys compare descriptions. Core learns
-- of a member, and gives it its id, when the first plan that uses it is emitted.

local core = require("loam.core")
local frame = require("loam.report.frame")
local options = require("loam.language.options")
local ordered = require("loam.language.ordered")
local quoted = require("loam.report.lua_text").quoted
local sandbox = require("loam.language.sandbox")

local strategy = {}

local MAX_CHAIN = 16 -- core's LM_CHAIN_MAX

local members   -- description -> chain of that one member
local chains    -- chain -> { members, joined }
local by_list   -- numbers of members, joined -> chain
local declared  -- all members, in order of declaration

-- Forgets all strategies, before another policy is opened.
function strategy.reset()
  members, chains, by_list, declared = {}, {}, {}, {}
end

strategy.reset()

local methods = {}

-- Refuses to compare a strategy with the view that an invariant gets of one (strategy.view). Two
-- tables that are not identical are compared by this, if both are of these kinds.
local function equal(a, b)
  local chain = chains[a] or chains[b]
  if not chain or chains[a] and chains[b] then return false end
  return frame.refuse("type", "got describes a strategy, and is equal to none",
    "write got.name == " .. quoted(chain.members[1].name))
end

-- Makes the metamethod of an operator with which people try to make a chain.
local function joins_nothing(operator)
  return function()
    return frame.refuse("type", "strategies are not joined with '" .. operator .. "'",
      "write a:or_else(b)")
  end
end

local metatable = {
  __eq = equal,
  __add = joins_nothing("+"), __concat = joins_nothing(".."), __div = joins_nothing("/"),
  __call = function() return frame.refuse("type", "a strategy is not a function") end,
  __index = function(_, field)
    if methods[field] then return methods[field] end
    return frame.refuse_word("field", "a strategy has no field '" .. tostring(field) .. "'", field,
      { "or_else" })
  end,
  __newindex = function()
    return frame.refuse("write", "a strategy cannot be changed",
      "give its options to the constructor")
  end,
}

local function new_chain(list)
  local chain = setmetatable({}, metatable)
  chains[chain] = { members = list, joined = {} }
  ordered.number(chain)
  return chain
end

---@return table|nil members of a chain; nil if `chain` is not a strategy
function strategy.members(chain)
  local found = chains[chain]
  return found and found.members
end

function methods.or_else(a, b, ...)
  local first, second = chains[a], chains[b]
  if not first then frame.refuse("type", "or_else is a method", "write a:or_else(b)") end
  if not second then
    frame.refuse("type", "or_else takes a strategy, not " .. type(b), "write a:or_else(b)")
  end
  if select("#", ...) > 0 then
    frame.refuse("type", "or_else takes one strategy", "write a:or_else(b):or_else(c)")
  end
  local joined = first.joined[b]
  if joined then return joined end
  local last = first.members[#first.members]
  if last.kind == "deny" then
    last.is_followed, first.joined[b] = true, a -- nothing behind a denial is tried
    return a
  end
  local list = {}
  for _, member in ipairs(first.members) do list[#list + 1] = member end
  for _, member in ipairs(second.members) do list[#list + 1] = member end
  if #list > MAX_CHAIN then
    frame.refuse("option",
      "a chain of " .. #list .. " strategies: at most " .. MAX_CHAIN .. " can be tried")
  end
  joined = strategy.chain(list)
  first.joined[b] = joined
  return joined
end

-- Returns the chain of a list of members. Equal lists have one chain.
function strategy.chain(list)
  local numbers = {}
  for i, member in ipairs(list) do numbers[i] = member.number end
  local id = table.concat(numbers, ",")
  by_list[id] = by_list[id] or new_chain(list)
  return by_list[id]
end

-- ---- members

local function list_text(list) return "{" .. table.concat(list, ",") .. "}" end

local function numa_text(numa)
  if numa.mode == "bind" then return #numa.nodes == 1 and numa.nodes[1] or list_text(numa.nodes) end
  if numa.mode == "prefer" then return "{prefer=" .. numa.nodes[1] .. "}" end
  if numa.mode ~= "weighted" then return numa.mode end
  local parts = {}
  for i, n in ipairs(numa.nodes) do parts[i] = "[" .. n .. "]=" .. numa.weights[n] end
  return "{weights=" .. list_text(parts) .. "}"
end

local LIMITS = { limit = true, soft = true }

-- The options that a text leaves out: none; those without an effect, since `zero = false` and
-- `guard = false` say what holds without them; limits too.
local function none() return false end
local function without_effect(option, value)
  return value == false or option == "guard" and value == 0
end
local function limits_too(option, value) return LIMITS[option] or without_effect(option, value) end

-- The options as text, in a fixed order. `is_left_out` says which options are left out.
local function words(values, is_left_out)
  local parts = {}
  for _, option in ipairs(options.order()) do
    local value = values[option]
    if value ~= nil and option ~= "name" and not is_left_out(option, value) then
      if option == "numa" then value = numa_text(value) end
      if LIMITS[option] then value = string.format("%d", value) end
      parts[#parts + 1] = option .. "=" .. tostring(value)
    end
  end
  return table.concat(parts, ",")
end

local function default_name(kind, described)
  return string.sub(described == "" and kind or kind .. "(" .. described .. ")", 1, 63)
end

-- The numbers are core's lm_device_pool_kind.
local SUPPLY = { cache = 1, chunks = 2, driver = 3, none = 4, sleep = 5 }

-- Returns a device as core numbers it. With `current` = 0, as for `id`, "current" is 0 and device N
-- is N + 1. With `current` = 1, as for `prefer`, 0 means that none is given, "current" is 1 and
-- device N is N + 2.
local function device_number(id, current)
  if id == nil then return nil end
  return id == "current" and current or id + current + 1
end

local function description(kind, values, handler)
  return {
    kind = kind, name = values.name, align = values.align or 0, limit = values.limit or 0,
    soft = values.soft or 0, shared = values.shared,
    numa = values.numa, huge = values.huge or "default", zero = values.zero or false,
    prefault = values.prefault or false, lock = values.lock or false, guard = values.guard or 0,
    handler = handler, dir = values.dir, mapped = values.mapped, portable = values.portable,
    write_combined = values.write_combined, supply = SUPPLY[values.pool],
    device = device_number(values.id, 0), prefer = device_number(values.prefer, 1),
  }
end

-- Declares a strategy of `kind`. `given` is the policy's table of options.
function strategy.declare(kind, given, handler)
  local values, reason = options.check(kind, given)
  local given_words = words(values, none)
  values.name = values.name or default_name(handler and "handler:" .. handler or kind, given_words)
  -- An invariant may ask whether an option is false or was not given, so these are two strategies.
  local id = kind .. "\0" .. (handler or "") .. "\0" .. values.name .. "\0" .. given_words
  if not members[id] then
    if handler and not core.handler(handler) then
      reason = "the host has registered no handler \"" .. handler .. "\""
    end
    local member = {
      number = #declared + 1, name = values.name, kind = kind, values = values, given = given,
      handler = handler, line = frame.line(), reason = reason,
      described = kind .. ":" .. (handler or "") .. ":" .. words(values, without_effect),
      description = description(kind, values, handler),
    }
    declared[member.number] = member
    members[id] = strategy.chain { member }
  end
  return members[id]
end

-- Notes that pick has returned a chain, so that its members may serve.
function strategy.note_reached(chain)
  for _, member in ipairs(chains[chain].members) do member.is_reached = true end
end

-- Returns whether two members count their live bytes together, as core does for members that differ
-- in their limits alone.
function strategy.count_together(a, b)
  return a.kind == b.kind and a.handler == b.handler and a.name == b.name
    and words(a.values, limits_too) == words(b.values, limits_too)
end

---@return string what a member is, without its name; members that give equal memory have equal text
function strategy.described(member) return member.described end

---@return table[] every member that the policy has declared so far
function strategy.declared() return declared end

-- On a machine without a device, members of these kinds leave their chains: no device appears while
-- the process lives. Other members stay, because the machine may be able to serve them later.
-- Returns the members of a chain that core tries. Refuses a chain whose last member this machine
-- cannot serve.
function strategy.served(chain)
  local list = chains[chain]
  if list.served then return list.served end
  local last = list.members[#list.members]
  if last.reason then
    frame.refuse("machine", "strategy '" .. last.name .. "': " .. last.reason,
      "give the strategy a fallback: :or_else(other)", last.line)
  end
  local served = {}
  for _, member in ipairs(list.members) do
    if not (member.reason and options.needs_device(member.kind)) then
      served[#served + 1] = member
    end
  end
  list.served = served
  return served
end

---@return integer core's id of a member
function strategy.id(member)
  if not member.id then
    local id, message = core.strategy(member.description)
    if not id then
      frame.refuse("machine", "strategy '" .. member.name .. "': " .. message, nil, member.line)
    end
    member.id = id
  end
  return member.id
end

-- ---- strategies as invariants and reports show them

local FIELDS = { "kind", "handler", unpack(options.order()) }

local IS_FIELD = {}
for _, field in ipairs(FIELDS) do IS_FIELD[field] = true end

---@return boolean|nil whether a strategy can have a field of this name
function strategy.is_field(name) return IS_FIELD[name] end

local function copy(value)
  if type(value) ~= "table" then return value end
  local out = {}
  for k, v in next, value do out[k] = copy(v) end
  return sandbox.guarded(out)
end

-- The fields of `got` in an invariant: the options that the policy gave; others are nil.
local function declared_fields(member)
  local fields = { kind = member.kind, name = member.name, handler = member.handler }
  for _, option in ipairs(options.order()) do
    if option ~= "name" then
      local value = rawget(member.given, option)
      if value ~= nil then fields[option] = copy(value) end
    end
  end
  return fields
end

---@return table `got` of an invariant
function strategy.view(member)
  if not member.view then
    local fields = declared_fields(member)
    member.view = setmetatable({}, {
      __index = function(_, field)
        if not IS_FIELD[field] then
          frame.refuse_word("field", "got has no field '" .. tostring(field) .. "'", field, FIELDS)
        end
        return fields[field]
      end,
      __newindex = function() return frame.refuse("write", "got cannot be changed") end,
      __eq = equal,
    })
  end
  return member.view
end

-- Returns what a report shows in place of a string such as "+0": the nodes that it stands for. Nil:
-- the policy gave no such string.
local function named_by_string(member)
  local given, numa = rawget(member.given, "numa"), member.values.numa
  if type(given) == "table" and type(rawget(given, "prefer")) == "string" then
    return { prefer = numa.nodes[1] }
  end
  if type(given) ~= "string" or not numa.nodes then return nil end
  return #numa.nodes == 1 and numa.nodes[1] or numa.nodes
end

-- Returns a copy of the options that the policy gave, for a report, with nodes as numbers.
---@return table
function strategy.report(member)
  local function bare(value)
    if type(value) ~= "table" then return value end
    local out, count = {}, 0
    for _ in next, value do count = count + 1 end
    for k, v in next, value do out[count == #value and k or tostring(k)] = bare(v) end
    return out
  end
  local fields = declared_fields(member)
  fields.numa = named_by_string(member) or fields.numa
  return bare(fields)
end

---@return string[] names of a chain's members
function strategy.names(chain)
  local names = {}
  for i, member in ipairs(chains[chain].members) do names[i] = member.name end
  return names
end

return strategy
