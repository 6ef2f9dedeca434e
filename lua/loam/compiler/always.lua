-- always.lua - the invariants of a policy, decided at every leaf.
--
-- At the end of a path of pick, everything that the path has settled still holds. From there the
-- invariant is traced, with the symbolic request and with each strategy that may serve the leaf. A
-- path on which the invariant is false is a violation; it is shown with a request that takes it.

local witness = require("loam.compiler.witness")
local frame = require("loam.report.frame")
local ordered = require("loam.language.ordered")
local request = require("loam.symbolic.request")
local sandbox = require("loam.language.sandbox")
local strategy = require("loam.language.strategy")
local trace = require("loam.compiler.trace")

local always = {}

---@class loam.Invariant
---@field name string
---@field holds function
---@field line integer of its definition

local EXAMPLE = "write [\"what always holds\"] = function(req, got) return … end"

-- Checks the table `always` of a policy.
---@return loam.Invariant[] sorted by name
function always.read(given, line)
  local list = {}
  for name, holds in ordered.pairs(given, false) do
    if type(name) ~= "string" then
      frame.refuse("policy", "always has an entry without a name", EXAMPLE, line)
    elseif type(holds) ~= "function" then
      frame.refuse("policy", "always \"" .. name .. "\" is a " .. type(holds)
        .. ": must be a function", EXAMPLE, line)
    end
    if not frame.is_own(holds) then
      frame.refuse("policy", "always \"" .. name .. "\" is a function of loam or of Lua: must be a "
        .. "function of this file", "write function(req, got) return … end", line)
    end
    list[#list + 1] = { name = name, holds = holds, line = debug.getinfo(holds, "S").linedefined }
  end
  table.sort(list, function(a, b) return a.name < b.name end)
  return list
end

local function violation(invariant, member)
  local point = witness.find(trace.known())
  return {
    invariant = invariant, member = member, path = trace.outer_path(), point = point,
    words = point and "for " .. request.words(point)
      or "on a path that no request was found for, so it could not be proved",
  }
end

-- Decides the invariants at the end of the present path, whose leaf is `chain`. Puts the first
-- violation of each invariant into `found`. Calls `enter(invariant, run)` before each trace, and
-- `enter(nil, nil)` at the end.
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
