-- schedule.lua - how often `loam top` looks at each process, so that all looks together stay cheap.
--
-- A look costs processor time of the command, in proportion to the tables of the process. The looks
-- may take a share of one core. Processes whose looks are cheap are looked at in each interval. The
-- time that they leave is divided evenly among the others, which are looked at less often (max-min
-- fairness).

local schedule = {}

-- Returns how many milliseconds to wait between two looks at each process.
---@param costs number[] milliseconds of processor time that a look at each process takes
---@param every number milliseconds of the interval; no result is below it
---@param share number the share of a core that all looks may take
---@return number[]
function schedule.waits(costs, every, share)
  local order, waits = {}, {}
  for i in ipairs(costs) do order[i] = i end
  table.sort(order, function(a, b) return costs[a] < costs[b] end)
  local left = every * share
  for place, i in ipairs(order) do
    local part = left / (#order - place + 1)
    if costs[i] <= part then
      waits[i] = every
      left = left - costs[i]
    else
      waits[i] = every * costs[i] / part
      left = left - part
    end
  end
  return waits
end

return schedule
