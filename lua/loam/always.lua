-- always - a policy's invariants, decided over every leaf.
--
-- Where a path of pick ends, what it has settled is still in force; from there the invariant is
-- traced on, with the same symbolic request and each strategy that the leaf may be served by. Any
-- path on which it does not hold is a violation, shown with a request that takes it.

local bounds = require("loam.bounds")
local here = require("loam.here")
local request = require("loam.request")
local sandbox = require("loam.sandbox")
local strategy = require("loam.strategy")
local trace = require("loam.trace")

local always = {}

---@class loam.Invariant
---@field name string
---@field holds function
---@field line integer where it is defined

-- Checks the table that a policy gave; its invariants come sorted by name.
---@return loam.Invariant[]
function always.read(given, line)
  local list = {}
  for name, holds in next, given do
    if type(name) ~= "string" or type(holds) ~= "function" then
      here.refuse("policy", "an entry of always is not a named function",
        "write [\"what always holds\"] = function(req, got) return … end", line)
    end
    list[#list + 1] = { name = name, holds = holds, line = debug.getinfo(holds, "S").linedefined }
  end
  table.sort(list, function(a, b) return a.name < b.name end)
  return list
end

local function violation(invariant, member)
  local point = bounds.witness(trace.known())
  return {
    invariant = invariant, member = member, path = trace.outer_path(), point = point,
    words = point and "for " .. request.words(point)
      or "on a path that no request was found for, so it could not be proved",
  }
end

-- Decides the invariants at the leaf of `chain`, where the present path ends. `found` collects the
-- first violation of each; `enter(invariant, run)` is told what is about to be traced, and of
-- nothing at the end.
function always.decide(invariants, chain, found, enter)
  for _, invariant in ipairs(invariants) do
    for _, member in ipairs(strategy.served(chain)) do
      if found[invariant] then break end
      local got = strategy.view(member)
      local function run() return sandbox.call(invariant.holds, request.req, got) end
      enter(invariant, run)
      trace.explore(run, function(holds)
        if not holds and not found[invariant] then
          found[invariant] = violation(invariant, member)
        end
        return {}
      end)
    end
  end
  enter(nil, nil)
end

return always
