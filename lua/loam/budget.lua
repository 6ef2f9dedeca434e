-- budget - the steps of a load, each with its own time and memory; core keeps the clock.

local core = require("loam.core")

local budget = {}

local current = "loading"

-- Starts a step; `what` names it in the error when its budget is exceeded.
function budget.step(what)
  current = what
  core.step(what)
end

-- Goes on with the present step after the hook that watches it was taken away.
function budget.resume()
  core.step(current)
end

return budget
