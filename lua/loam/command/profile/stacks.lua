-- stacks.lua - the profile of a process by the stacks that asked for its memory, from samples.
--
-- Each figure of a row is an estimate: a sample stands for the blocks and bytes that were likely
-- allocated beside it (core/engine/sample.h). A profile has the stack of a sample, with the tag and
-- the strategy as labels. Functions come from `symbols`; an address without one stays an address.

local describe = require("loam.command.describe")
local json = require("loam.report.json")
local profile = require("loam.command.profile.profile")
local units = require("loam.command.units")

local stacks = {}

-- Functions of loam itself. A stack begins with them if loam is linked into the program.
local OWN = { "^lm_", "^loam_" }

-- Static functions of loam that stacks begin with, and their files in core/. A function of the
-- program that has one of these names and allocates is not shown either.
local OWN_STATIC = {
  note_sample = "engine/sample.c",
  note_served = "engine/chain.c", serve_by = "engine/chain.c",
  serve_slow = "api/memory.c", serve_cached = "api/memory.c", serve_guarded = "api/memory.c",
  serve_request = "api/memory.c", learn_request = "api/memory.c", malloc_large = "api/memory.c",
  code_refill = "api/memory.c", move_object = "api/memory.c",
  block_new_slow = "block/block.c",
}

-- A compiler may give a static function a suffix, such as `.constprop.0`.
local function is_own(name)
  for _, pattern in ipairs(OWN) do
    if name:find(pattern) then return true end
  end
  return OWN_STATIC[name:match("^[^.]*")] ~= nil
end

-- Returns a function that finds the mapping of an address. `list` is in the order of addresses.
local function mapping_finder(list)
  return function(address)
    local low, high = 1, #list
    while low <= high do
      local middle = math.floor((low + high) / 2)
      local mapping = list[middle]
      if address < mapping.from then high = middle - 1
      elseif address >= mapping.to then low = middle + 1
      else return mapping end
    end
    return nil
  end
end

-- Adds the mappings of a process to a profile, and returns the profile's own records of them.
local function add_mappings(made, list)
  local added = {}
  for i, mapping in ipairs(list) do
    added[i] = profile.add_mapping(made, { from = mapping.from, to = mapping.to,
                                           offset = mapping.offset, file = mapping.file,
                                           build_id = mapping.build_id })
  end
  return added
end

-- Returns a function that returns the location of an address in a profile. It adds the location at
-- its first call for the address.
local function location_maker(made, list, symbols)
  local find, known = mapping_finder(add_mappings(made, list)), {}
  return function(address)
    if known[address] then return known[address] end
    local mapping = find(address)
    local found = symbols and symbols.find(address, mapping and mapping.build_id)
    local lines = {}
    if found then
      local func = profile.add_function(made, { name = found.name, file = found.file,
                                                system_name = found.system_name, kind = "native" })
      lines[1] = { func = func, line = found.line }
      if mapping then
        mapping.has_functions = true
        mapping.has_files = mapping.has_files or found.file ~= nil
        mapping.has_lines = mapping.has_lines or found.line ~= nil
      end
    end
    known[address] = profile.add_location(made, { address = address, mapping = mapping,
                                                  lines = lines })
    return known[address]
  end
end

-- Returns the position of the innermost frame that is not loam's own.
local function first_foreign(frames, locate)
  for i, address in ipairs(frames) do
    local line = locate(address).lines[1]
    if not line or not is_own(line.func.name) then return i end
  end
  return 1
end

-- The function of CPython that runs frames of Python.
local LOOP = "_PyEval_EvalFrameDefault"

local function add_python(made, stack, frame)
  stack[#stack + 1] = profile.add_frame(made, { name = frame.name, file = frame.file,
                                                kind = "python" }, frame.line)
end

-- One C frame of the interpreter's loop can run several Python frames: calls from Python to Python
-- stay in the loop. `python` has the Python frames of a stack, the innermost first; `is_entry`
-- marks the outermost one that a C frame runs. Returns a list for each C frame, the innermost C
-- frame first. Each list has the frames that the C frame runs, the outermost first.
local function runs_of(python)
  local runs, run = {}, {}
  for _, frame in ipairs(python) do
    table.insert(run, 1, frame)
    if frame.is_entry then
      runs[#runs + 1] = run
      run = {}
    end
  end
  if #run > 0 then runs[#runs + 1] = run end
  return runs
end

-- Returns a table from the position of each C frame of the interpreter's loop to the Python frames
-- that it runs. If no such C frame is found, because the functions are not known, the key 0 has all
-- Python frames.
local function python_at(row, first, locate)
  local at, runs, n = {}, runs_of(row.python or {}), 0
  for i = first, #row.frames do
    local line = locate(row.frames[i]).lines[1]
    if line and line.func.name == LOOP and runs[n + 1] then
      n = n + 1
      at[i] = runs[n]
    end
  end
  if n > 0 then return at end
  local all = {}
  for i = #runs, 1, -1 do
    for _, frame in ipairs(runs[i]) do all[#all + 1] = frame end
  end
  return { [0] = all }
end

-- Returns the stack of a row, the outermost frame first, without loam's own functions.
local function stack_of(made, row, locate)
  local stack, frames = {}, row.frames
  local first = first_foreign(frames, locate)
  local python = python_at(row, first, locate)
  for _, frame in ipairs(python[0] or {}) do add_python(made, stack, frame) end
  for i = #frames, first, -1 do
    if python[i] then
      for _, frame in ipairs(python[i]) do add_python(made, stack, frame) end
    else
      stack[#stack + 1] = locate(frames[i])
    end
  end
  if #stack == 0 then
    local name = row.strategy and "(no stack)" or "(stacks beyond the table)"
    stack[1] = profile.add_frame(made, { name = name, kind = "native" })
  end
  return stack
end

-- Returns what readers should know of samples that are missing, a text for each.
local function losses(answer)
  local out = {}
  local function add(n, format)
    if n > 0 then out[#out + 1] = format:format(units.plural(n, "sample")) end
  end
  add(answer.unfit, "%s had no room in the table of stacks: shown together")
  add(answer.live_lost, "%s had no room in the table of live samples: what is in use is more")
  add(answer.skipped, "dropped %s, since the program was forking")
  return out
end

-- Makes the profile of a process from its samples.
---@param answer table the keys that core/cli/look.h has for samples
---@param subject loam.ProfileSubject
---@param symbols loam.Symbols|nil nil: addresses stay
---@return loam.Profile
function stacks.live(answer, subject, symbols)
  local made = profile.new()
  local locate = location_maker(made, answer.mappings, symbols)
  for _, row in ipairs(answer.stacks) do
    local labels = row.strategy
      and { { key = "tag", text = row.tag }, { key = "strategy", text = row.strategy } }
    profile.add(made, stack_of(made, row, locate),
      { row.total_blocks, row.total_bytes, row.live_blocks, row.live_bytes }, labels)
  end
  made.time_ns = subject.now * 1e9
  made.duration_ns = answer.seconds * 1e9
  made.period_type = { type = "space", unit = "bytes" }
  made.period = answer.interval > 0 and answer.interval or nil
  made.title = ("%s (%d): about %s live, sampled for %d s"):format(describe.tag(subject.program),
    subject.pid, units.bytes(profile.total(made, 4)), answer.seconds)
  made.comments = { "loam " .. subject.version, json.repaired(made.title) }
  for _, loss in ipairs(losses(answer)) do table.insert(made.comments, loss) end
  return made
end

stacks.losses = losses
stacks.OWN_STATIC = OWN_STATIC

return stacks
