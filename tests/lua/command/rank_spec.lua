-- rank_spec.lua - the rank of a process in a parallel job: the variables that contain it, and where
-- the command shows it.

local canned = require("canned_context")
local json = require("loam.report.json")
local rank = require("loam.command.rank")

local function environment(...)
  return table.concat({ ... }, "\0") .. "\0"
end

local function rank_of(text, changes)
  local context = canned.new { environments = { [42] = text } }
  local status = { pid = 42, state = "running" }
  for key, value in pairs(changes or {}) do status[key] = value end
  return rank.of(context, status)
end

describe("the rank of a process", function()
  it("is what its launcher has set", function()
    for _, name in ipairs { "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID" } do
      assert.equal(17, rank_of(environment("A=b", name .. "=17", "C=d")))
    end
    assert.equal(0, rank_of("PMI_RANK=0"))
  end)

  it("is the rank of mpirun in a job of Slurm", function()
    assert.same({ 3, "17.2" }, { rank_of(environment("SLURM_PROCID=0", "SLURM_JOB_ID=17",
      "SLURM_STEP_ID=2", "PMIX_RANK=3", "OMPI_COMM_WORLD_RANK=3")) })
    assert.same({ 0, "17" }, { rank_of(environment("SLURM_PROCID=0", "SLURM_JOB_ID=17")) })
  end)

  it("is never part of another variable or value", function()
    assert.is_nil(rank_of(environment("XPMI_RANK=1", "A=PMI_RANK=2", "PMI_RANK=3x", "PMI_RANK=",
      "PMI_RANK=-1", "PMI_RANK=99999999999999999999")))
    assert.is_nil(rank_of(""))
    assert.is_nil(rank_of(environment("SLURM_JOB_ID=17")))
  end)

  it("is unknown if the environment cannot be read, or belongs to another process", function()
    local text = environment("PMI_RANK=1")
    assert.is_nil(rank_of(nil))
    assert.is_nil(rank_of(text, { state = "ended" }))
    assert.is_nil(rank_of(text, { state = "unknown" }))
  end)
end)

describe("a rank", function()
  local STATUS = {
    pid = 42, program = "sum", loam = "1.0.0", state = "running", generation = 1, name = "prod",
    path = "/p.lua", hash = "00000000deadbeef", loaded_at = 0, loads = 1, refused = 0, plans = 1,
    sites = 1, tags_refused = 0, since_ms = 5, last = { ok = true, at = 1, error = "" },
    limits = {}, updated_at = 1e9, uid = 0,
  }
  local FIGURES = {
    pid = 42, live_bytes = 64, live_blocks = 1, denied = 0, fallbacks = 0, failed = 0,
    rows = { { tag = "malloc.sum", strategy = "s", kind = "host", live_bytes = 64, live_blocks = 1,
               total_bytes = 64, total_blocks = 1 } },
  }

  -- Runs the command with two processes: one is rank 3 of job 17.0, and one has no rank. Returns
  -- its output.
  local function run(words)
    local alone = {}
    for key, value in pairs(STATUS) do alone[key] = value end
    alone.pid, alone.program = 43, "alone"
    local status, context = canned.run(words, {
      boards = { STATUS, alone }, figures = { [42] = FIGURES, [43] = FIGURES },
      seen = { [42] = FIGURES, [43] = FIGURES },
      environments = { [42] =
        environment("SLURM_PROCID=3", "SLURM_JOB_ID=17", "SLURM_STEP_ID=0") },
    }, nil, nil, function(made)
      made.exists = { ["/proc/42"] = true, ["/proc/43"] = true }
    end)
    assert.equal(0, status, context.err)
    return context.out
  end

  it("has columns of `loam ps`", function()
    assert.equal("PID  PROGRAM  RANK  JOB   STATE    GENERATION  POLICY  FILE    LAST RELOAD\n"
      .. " 42  sum         3  17.0  running           1  prod    /p.lua  ok\n"
      .. " 43  alone       -  -     running           1  prod    /p.lua  ok\n", run("ps"))
  end)

  it("is in `loam status`, and in JSON", function()
    assert.matches("\nrank      3, job 17.0\n", run("status 42"), 1, true)
    assert.is_nil(run("status 43"):find("rank", 1, true))
    local programs = json.decode(run("ps --json")).programs
    assert.same({ 3, "17.0" }, { programs[1].rank, programs[1].job })
    assert.is_nil(programs[2].rank)
    assert.equal(3, json.decode(run("status 42 --json")).rank)
  end)

  it("is a column of `loam top` by process, if a process has one", function()
    local out = run("top --by process --count 1")
    assert.matches("PID  PROGRAM  RANK  STATE", out, 1, true)
    assert.matches("42  sum         3  running", out, 1, true)
    assert.matches("43  alone       -  running", out, 1, true)
    assert.is_nil(run("top 43 --by process --count 1"):find("RANK", 1, true))
    local first = json.decode(run("top 42 --by process --count 1 --json")).rows[1]
    assert.same({ 3, "17.0" }, { first.rank, first.job })
  end)

  it("is a label of `loam metrics`", function()
    local out = run("metrics")
    assert.matches('loam_live_bytes{pid="42",program="sum",rank="3",tag="malloc.sum"', out, 1, true)
    assert.matches('loam_live_bytes{pid="43",program="alone",tag="malloc.sum"', out, 1, true)
    assert.matches('rank="3",version="1.0.0",uid="0",slurm_job="17.0"}', out, 1, true)
  end)
end)
