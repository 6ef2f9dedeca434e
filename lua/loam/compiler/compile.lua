-- compile.lua - compiles a policy for one class of sites: traces it, decides its invariants, lowers
-- and emits the tree, and compares the plan with plain Lua.

local always = require("loam.compiler.always")
local budget = require("loam.compiler.budget")
local core = require("loam.core")
local diag = require("loam.report.diag")
local emit = require("loam.compiler.emit")
local frame = require("loam.report.frame")
local lower = require("loam.compiler.lower")
local request = require("loam.symbolic.request")
local sandbox = require("loam.language.sandbox")
local site = require("loam.symbolic.site")
local strategy = require("loam.language.strategy")
local trace = require("loam.compiler.trace")
local verify = require("loam.compiler.verify")

local compile = {}

local MAX_LED = 24 -- conditions shown on the way to a fault

---@class loam.Policy a loaded file (policy.lua)
---@field name string
---@field pick function
---@field invariants loam.Invariant[]
---@field constants number[]
---@field line integer of pick
---@field keeps string|nil "paths": leaves keep their paths; "unchecked": plans are not compared
---  with plain Lua (policy.open)

---@class loam.Compiled
---@field plan any core's handle
---@field reads_live boolean
---@field leaves table[] { chain, key, words } of each leaf of the plan, by index from 1
---@field tree table as traced
---@field violations table<loam.Invariant, table>

-- Returns the first result of pick. Refuses a second strategy, which would never serve.
local function only_strategy(first, second)
  if strategy.members(second) then
    frame.refuse("return", "pick returned two strategies",
      "write a:or_else(b): b serves when a cannot; or return one of them: return (f(req))")
  end
  return first
end

local function pick_of(policy)
  return function() return only_strategy(sandbox.call(policy.pick, request.req)) end
end

local function type_of(value)
  if site.is_text(value) then return "a string of the request" end
  if type(value) == "cdata" then return "a number of the request" end
  if value == nil then return "nil" end
  return "a " .. type(value)
end

-- Returns what to write where pick returned a value that is not a strategy. A function is mostly a
-- constructor that was not called, such as loam.deny.
local function advice_on(value)
  if type(value) == "function" then
    return "call the function; call a constructor above pick, as in local plain = loam.host {}"
  end
  return "return a strategy on every path, also at the end of pick"
end

-- ---- leaves

local function ids_of(served)
  local ids = {}
  for i, member in ipairs(served) do ids[i] = strategy.id(member) end
  return ids
end

local ends = {} -- chain -> the fields that all leaves with it have

-- Makes { chain, ids, key, words } from the value that pick returned.
local function end_of(chain)
  if ends[chain] then return ends[chain] end
  if not strategy.members(chain) then
    frame.refuse("return", "pick returned " .. type_of(chain) .. ", not a strategy",
      advice_on(chain))
  end
  local ids, key = ids_of(strategy.served(chain)), ""
  -- The key has all members, also those that this machine cannot serve: tests compare whole chains.
  for _, member in ipairs(strategy.members(chain)) do key = key .. "," .. member.number end
  strategy.note_reached(chain)
  ends[chain] = {
    chain = chain, ids = ids, key = key,
    words = "'" .. table.concat(strategy.names(chain), "' or else '") .. "'",
  }
  return ends[chain]
end

-- Makes a leaf of the traced tree. All leaves of a chain are one table, unless paths are kept.
local function leaf_of(policy, chain)
  local common = end_of(chain)
  if policy.keeps ~= "paths" then return common end
  return {
    path = trace.path(), chain = chain, ids = common.ids, key = common.key, words = common.words,
  }
end

-- ---- faults

local function shortened(story)
  if #story <= MAX_LED then return story end
  local last = {}
  for i = #story - MAX_LED + 1, #story do last[#last + 1] = story[i] end
  return last
end

-- Returns what to write where a part was used that the tag does not have; nil where the error is
-- another one. `problem` is the error, `last` the last condition before it.
local function advice_on_part(problem, last)
  if type(problem) ~= "string" or not last or last.holds then return nil end
  local part = string.match(last.condition, "^(.+:part%(%d+%)) ~= nil$")
  if not part then return nil end
  if not string.find(problem, "attempt to index local '", 1, true)
    and not string.find(problem, "attempt to index a nil value", 1, true) then
    return nil
  end
  return string.format("%s is nil for a tag without that part: write local p = %s, and then "
    .. "if p and p:under\"a\" then", part, part)
end

local OF_GOT = "an option that the strategy does not have is nil: write got.limit and "
  .. "got.limit < 4096"

-- Returns whether LuaJIT's message is about nil that may come from a local variable: it names one,
-- or none, and no field or variable from outside.
local function is_local_nil(problem)
  if type(problem) ~= "string" or not string.find(problem, "nil", 1, true) then return false end
  local kind = string.match(problem, "(%a+) '")
  return not kind or kind == "local"
end

-- Returns what to write where Lua refuses nil in an invariant, or nil.
local function advice_on_got(problem)
  local field = type(problem) == "string" and string.match(problem, "field '([^']+)'")
  return (is_local_nil(problem) or field and strategy.is_field(field)) and OF_GOT or nil
end

-- Returns what to write where Lua refuses a value that may be another parameter of pick than the
-- first one, which is nil.
local function advice_on_parameters(policy, problem)
  if not is_local_nil(problem) or debug.getinfo(policy.pick, "u").nparams < 2 then return nil end
  return "pick is called with one argument, the request: write function(req)"
end

-- Makes the diagnostic of an error, with the conditions that led to it. `stage` tells whether pick
-- was running, or an invariant after a path of pick.
local function explained(policy, stage, problem)
  local d = frame.diagnose(problem)
  if stage.traced or d.class == "leaves" or d.class == "internal" then return d end
  local path = trace.path()
  local story, line, _
  if stage.invariant then
    d.reason = "always \"" .. stage.invariant.name .. "\": " .. d.reason
    story = trace.tell(pick_of(policy), trace.along(trace.outer_path()))
    local rest
    rest, _, _, line = trace.tell(stage.run, trace.along(path))
    for _, step in ipairs(rest) do story[#story + 1] = step end
  else
    story, _, _, line = trace.tell(pick_of(policy), trace.along(path))
  end
  d.line = d.line or line
  d.led = d.led or shortened(story)
  local advice = stage.invariant and advice_on_got(problem)
    or not stage.invariant and advice_on_parameters(policy, problem)
  d.suggestion = advice_on_part(problem, story[#story]) or advice or d.suggestion
  return d
end

-- ---- stages

local function explore(policy, stage, violations)
  return trace.explore(pick_of(policy), function(chain)
    local leaf = leaf_of(policy, chain)
    always.decide(policy.invariants, chain, violations, function(invariant, run)
      stage.invariant, stage.run = invariant, run
    end)
    return leaf
  end)
end

local function compare(policy, where, made, emitted, number)
  local at
  local pick, req = policy.pick, request.req
  local function decide(point)
    at = point
    request.set(point)
    local leaf = end_of((sandbox.call(pick, req)))
    return leaf.key, leaf.words
  end
  request.place(where)
  local ok, found = pcall(verify.run, made.plan, emitted, made.tree, policy.constants,
    number, decide)
  if not ok then
    if frame.is_final(found) then error(found, 0) end
    local d = frame.diagnose(found)
    if at then d.reason = d.reason .. " (in plain Lua, for " .. request.words(at) .. ")" end
    error(d, 0)
  end
  if found then
    frame.refuse("mismatch", "the compiled plan gives " .. found.plan .. " and plain Lua "
      .. found.lua .. " for " .. found.request,
      "pick does something that cannot be compiled exactly; compare fields of req instead",
      policy.line)
  end
end

-- Adds to each violation its story, and the line of pick that returned the strategy.
local function retell(policy, violations)
  for _, found in pairs(violations) do
    local _
    found.story, _, _, found.line = trace.tell(pick_of(policy), trace.along(found.path))
  end
end

local function emitted_of(tree)
  return emit.run(lower.run(tree), function(leaf) return leaf.ids end)
end

local function planned(policy, where, tree, number)
  local emitted = emitted_of(tree)
  local plan, message, is_crowded = core.plan(emitted.image)
  if is_crowded then frame.refuse("machine", message, "one strategy can serve many tags") end
  if not plan then frame.refuse("internal", "core refused the plan: " .. message) end
  local made = { plan = plan, tree = tree, reads_live = emitted.reads[request.LIVE] or false }
  if policy.keeps ~= "unchecked" then
    budget.step("comparing tag '" .. where.tag .. "' with plain Lua")
    compare(policy, where, made, emitted, number)
  end
  made.leaves = {}
  for i, leaf in ipairs(emitted.leaves) do made.leaves[i] = end_of(leaf.chain) end
  return made
end

local function protected(policy, stage, run)
  local ok, result = pcall(run)
  if ok then return result end
  if frame.is_final(result) then error(result, 0) end
  frame.leave()
  return nil, explained(policy, stage, result)
end

local function prepare(where)
  sandbox.reset()
  trace.reset(core.limits.max_leaves)
  request.trace()
  site.begin(where)
end

-- Compiles for the class of the site `where`, class number `number` from 1. The result, also a
-- diagnostic, depends on `where` only by the observations that site.asked() then lists.
---@return loam.Compiled|nil, loam.Diagnostic|nil
function compile.run(policy, where, number)
  budget.step("tracing tag '" .. where.tag .. "'")
  prepare(where)
  local stage, violations = {}, {}
  local made, problem = protected(policy, stage, function()
    local tree = explore(policy, stage, violations)
    stage.traced = true
    retell(policy, violations)
    return planned(policy, where, tree, number)
  end)
  sandbox.reset()
  trace.reset()
  request.close()
  if made then made.violations = violations end
  return made, problem
end

-- Returns the violations in a compiled class as diagnostics, in the order of the invariants.
---@return loam.Diagnostic[]
function compile.violated(policy, made)
  local list = {}
  for _, invariant in ipairs(policy.invariants) do
    local found = made.violations[invariant]
    if found then
      list[#list + 1] = diag.new {
        line = found.line or invariant.line, class = "always", led = shortened(found.story),
        reason = string.format("\"%s\" does not hold for strategy '%s' %s", invariant.name,
          found.member.name, found.words),
        suggestion = "return another strategy on this line, or change the invariant on line "
          .. invariant.line,
      }
    end
  end
  return list
end

-- Follows one request through pick. It runs on symbols, so that every condition has its text.
-- Returns the story, the chain, and the line that returned the chain; or nil and a diagnostic.
function compile.tell(policy, where, point)
  prepare(where)
  local story, chain, ok, line = trace.tell(pick_of(policy), trace.at(point))
  sandbox.reset()
  trace.reset()
  request.close()
  if not ok then
    if frame.is_final(chain) then error(chain, 0) end
    return nil, frame.diagnose(chain)
  end
  return story, chain, line
end

-- Like compile.tell, without the story: returns the chain, or nil and a diagnostic.
function compile.chain(policy, where, point)
  prepare(where)
  local ok, chain = trace.pass(pick_of(policy), trace.at(point))
  sandbox.reset()
  trace.reset()
  request.close()
  if ok then return chain end
  if frame.is_final(chain) then error(chain, 0) end
  return nil, frame.diagnose(chain)
end

-- Compares the plan of a class with plain Lua for a site, at each of `points`. Returns the
-- difference in words, or nil.
---@return string|nil
function compile.difference(policy, where, class, points)
  sandbox.reset()
  request.place(where)
  local at
  local ok, difference = pcall(function()
    for _, point in ipairs(points) do
      at = point
      request.set(point)
      local plain = end_of((sandbox.call(policy.pick, request.req)))
      local leaf = class.leaves[core.decide(class.plan, point) + 1]
      if plain.key ~= leaf.key then
        return "the compiled plan gives " .. leaf.words .. " and plain Lua " .. plain.words
          .. " for " .. request.words(point)
      end
    end
  end)
  sandbox.reset()
  request.close()
  if ok then return difference end
  if frame.is_final(difference) then error(difference, 0) end
  return "plain Lua gives an error for " .. request.words(at) .. ": "
    .. frame.diagnose(difference).reason
end

-- Checks that the plan decides what compile.tell has found.
---@return boolean whether the plan's chain at `point` is equal to `chain`
function compile.agrees(class, point, chain)
  return class.leaves[core.decide(class.plan, point) + 1].key == end_of(chain).key
end

-- Like compile.tell, for one path of a compiled tree (trace.path) in place of a request.
function compile.tell_path(policy, where, path)
  prepare(where)
  local story, chain, _, line = trace.tell(pick_of(policy), trace.along(path))
  sandbox.reset()
  trace.reset()
  request.close()
  return story, chain, line
end

-- Runs pick along one path of a compiled tree. Calls `visit(line)` for each line of the policy that
-- is executed, in their order.
function compile.visit_lines(policy, where, path, visit)
  prepare(where)
  trace.pass(pick_of(policy), trace.along(path), visit)
  sandbox.reset()
  trace.reset()
  request.close()
end

return compile
