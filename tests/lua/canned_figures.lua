-- canned_figures.lua - rows of boards and figures of processes, for specs of `loam top`.

local json = require("loam.report.json")

local canned_figures = {}

-- Returns the row of a process on a board.
function canned_figures.status(pid, changes)
  local row = { pid = pid, program = "prog" .. pid, state = "running", since_ms = 5, ended_at = 0,
                hash = "00000000deadbeef", name = "prod" }
  for key, value in pairs(changes or {}) do row[key] = value end
  return row
end

-- Returns the figures of a process whose memory is in these rows.
function canned_figures.figures(rows, changes)
  local answer = { rows = json.array(rows), strategies = json.array {}, got = json.array {},
                   nodes = json.array {}, fallbacks = 0, failed = 0, denied = 0, live_bytes = 0,
                   live_blocks = 0 }
  for _, one in ipairs(rows) do
    answer.live_bytes = answer.live_bytes + one.live_bytes
    answer.live_blocks = answer.live_blocks + one.live_blocks
  end
  for key, value in pairs(changes or {}) do answer[key] = value end
  return answer
end

return canned_figures
