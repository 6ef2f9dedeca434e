-- budget.lua - the steps of a load, each with its own time and memory. Core keeps the clock.

local core = require("loam.core")

local budget = {}

local current = "loading"

-- Starts a step. `what` names the step in the error that core raises when its budget is exceeded.
function budget.step(what)
  current = what
  core.step(what)
end

-- Continues the present step after debug.sethook has taken away core's hook, which watches it.
function budget.resume()
  core.step(current)
end

return budget
