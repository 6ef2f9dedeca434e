-- rank.lua - which part of a parallel job a process is. Launchers of MPI programs and Slurm start
-- each process with its rank in an environment variable, and the kernel shows the environment of a
-- process to its own user and to root. The process does nothing for that.

local boards = require("loam.command.boards")

local rank = {}

-- The variables of Open MPI, of PMIx and PMI (MPICH, Intel MPI), and of Slurm. The first that is
-- set counts: a program that mpirun starts in a job of Slurm has the variables of both.
local VARIABLES = { "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID" }

-- Returns the numbers that variables hold, by name. Only numbers are taken: a rank is one, and so
-- are the ids of Slurm.
local function numbers_of(text)
  local found = {}
  for name, value in ("\0" .. text):gmatch("%z([%w_]+)=(%d+)%f[%z]") do
    if #value < 10 then found[name] = found[name] or tonumber(value) end
  end
  return found
end

-- Returns the job and its step as the commands of Slurm write them, such as "17.0"; nil outside
-- Slurm.
local function job_of(found)
  local job, step = found.SLURM_JOB_ID, found.SLURM_STEP_ID
  if not job then return nil end
  return step and ("%d.%d"):format(job, step) or ("%d"):format(job)
end

-- Returns the rank of a process, and its job of Slurm. Returns nil for a process that no launcher
-- started, that has ended, that is in another PID namespace, or whose environment may not be read.
-- A process that a rank starts inherits the rank.
---@param status table of the process's board
---@return integer|nil rank
---@return string|nil job
function rank.of(context, status)
  if not boards.has_process(status) then return nil end
  local text = context.api.environment(status.pid)
  local found = text and numbers_of(text) or {}
  for _, name in ipairs(VARIABLES) do
    if found[name] then return found[name], job_of(found) end
  end
  return nil
end

-- Adds the rank and the job of a process to its status, and to the status as text.
---@param row loam.BoardRow
function rank.add(context, row)
  local number, job = rank.of(context, row.status)
  if not number then return end
  row.status.rank, row.status.job = number, job
  boards.add_member(row, ('"rank":%d'):format(number))
  if job then boards.add_member(row, ('"job":"%s"'):format(job)) end
end

return rank
