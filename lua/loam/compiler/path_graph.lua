-- path_graph.lua - all paths of a policy, for all sites at once, as one graph.
--
-- If the classes of sites are compiled one by one, twelve questions that do not depend on each
-- other need 4096 runs. Most policies go the same way after such a question, whatever its answer
-- was. Here the answers of questions are outcomes of conditions, as comparisons are, so that paths
-- fork at questions too. Where two paths reach one question in one state, the later path ends,
-- because it would go on like the earlier path. The state is: the functions that run, the places in
-- them (spread.lua puts each word on a line, so a line is a place), the values of their local
-- variables, and the conditions on the request's numbers that the path has settled. `pick` has no
-- other state, because scan.lua refuses writes to anything outside. (The method is state merging in
-- symbolic execution: Boonstoppel, Cadar and Engler, RWset, 2008.)
--
-- A path may give answers that no site gives together: class_graph.lua searches sites for its
-- classes afterwards.

local always = require("loam.compiler.always")
local budget = require("loam.compiler.budget")
local core = require("loam.core")
local diag = require("loam.report.diag")
local dsl = require("loam.language.dsl")
local frame = require("loam.report.frame")
local numbers = require("loam.compiler.numbers")
local request = require("loam.symbolic.request")
local sandbox = require("loam.language.sandbox")
local scan = require("loam.compiler.scan")
local site = require("loam.symbolic.site")
local site_search = require("loam.compiler.site_search")
local spread = require("loam.language.spread")
local strategy = require("loam.language.strategy")
local trace = require("loam.compiler.trace")

local path_graph = {}

local MOST_RUNS = 4000  -- of a policy; one that needs more gets no graph
local MOST_ROUNDS = 8   -- see `repeated`
local FAULT = { leaf = "fault" } -- the end of a path on which pick fails or an invariant is false

---@class loam.PathNode { condition, yes, no }, or { leaf }, or { met = the node to go on from }
--- A condition of a question has the fields `observation` and `answer`.

local getinfo, getlocal = debug.getinfo, debug.getlocal

-- ---- the state

local name_of -- function(value) -> a number for each value but nil, numbers and booleans

local function word_of(value)
  local kind = type(value)
  if kind == "nil" then return "-" end
  if kind == "number" and value == 0 then return 1 / value < 0 and "-0" or "0" end
  if kind == "number" then return string.format("%.17g", value) end
  if kind == "boolean" then return value and "t" or "f" end
  return "#" .. name_of(value)
end

local function add_values(parts, level, from, step)
  local at = from
  while true do
    local name, value = getlocal(level, at)
    if not name then return end
    parts[#parts + 1] = word_of(value)
    at = at + step
  end
end

local answered -- below

-- Returns the state of the functions that wait for the answer of a question, as text; nil if a
-- function of C is among them.
local function state_of(observation)
  local parts, level = { name_of(observation) }, 2
  while getinfo(level, "f").func ~= answered do level = level + 1 end
  while true do
    level = level + 1
    local info = getinfo(level, "Slf")
    if not info or info.what == "C" then return nil end
    if info.func == sandbox.call then return table.concat(parts, " ") end
    parts[#parts + 1] = "@" .. name_of(info.func) .. ":" .. info.currentline
    add_values(parts, level + 1, 1, 1)
    add_values(parts, level + 1, -1, -1)
  end
end

-- ---- the answers of questions

local conditions -- observation -> answer -> condition
local met        -- conditions of questions that this run has met so far
local repeated   -- conditions of questions that some run has met twice
local has_grown  -- whether `repeated` has got a condition since the round began
local nodes      -- state -> node of the question that was first asked in it
local part       -- of the policy that runs, as text: pick, or an invariant with a strategy

local function condition_of(observation, answer)
  local row = conditions[observation] or {}
  conditions[observation] = row
  row[answer] = row[answer] or {
    complex = true, observation = observation, answer = answer, text = observation.name,
  }
  return row[answer]
end

-- The outcome of a question counts for the state only where the path may ask it again.
local function name_of_settled(c)
  if c.observation and not repeated[c] then return nil end
  return tostring(name_of(c))
end

-- Ends this run if an earlier run has asked the question in this state. If none has, the function
-- returns the state.
local function met_before(observation)
  local state = state_of(observation)
  state = state and table.concat({ part, state, trace.settled(name_of_settled) }, "|")
  if state and nodes[state] then error({ met = nodes[state] }, 0) end
  return state
end

local function decide(c)
  if met[c] and not repeated[c] then repeated[c], has_grown = true, true end
  met[c] = true
  return trace.decide(c)
end

-- Answers a question in place of a site: each answer is tried on some path.
function answered(observation)
  local answers = site_search.answers(observation)
  local first = condition_of(observation, answers[1])
  local is_new = trace.is_ahead() and not met[first]
  local state = is_new and answers[1] ~= false and met_before(observation) or nil
  for i = 1, #answers - 1 do
    local outcome = decide(condition_of(observation, answers[i]))
    if i == 1 and state then nodes[state] = trace.newest_fork() end
    if outcome then return answers[i] end
  end
  return answers[#answers]
end

-- ---- the runs

-- Runs pick, and the invariants for each strategy that may serve. Returns the leaf.
local function run_once(given, invariants)
  part, met = "pick", {}
  local chain, second = sandbox.call(given.pick, request.req)
  if not strategy.members(chain) or strategy.members(second) then return FAULT end
  local key = ""
  for _, member in ipairs(strategy.members(chain)) do key = key .. "," .. member.number end
  for i, invariant in ipairs(invariants) do
    for _, member in ipairs(strategy.served(chain)) do
      part = i .. " " .. member.number .. " " .. key
      if not sandbox.call(invariant.holds, request.req, strategy.view(member)) then return FAULT end
    end
  end
  return { leaf = key }
end

-- Raises an error that ends the exploration, unless pick itself has failed.
local function check_problem(problem)
  if type(problem) == "table" and problem.met then return problem end
  local is_own = diag.is(problem) and (problem.class == "leaves" or problem.class == "impure")
  if is_own or frame.is_final(problem) then error(problem, 0) end
  return FAULT
end

local function explore(given, invariants)
  local runs = 0
  return trace.explore(function()
    runs = runs + 1
    if runs > MOST_RUNS then error({ is_too_large = true }, 0) end
    budget.step("following path " .. runs .. " of pick")
    local ok, result = pcall(run_once, given, invariants)
    frame.leave()
    return ok and result or check_problem(result)
  end, function(result) return result end)
end

-- Explores until each condition that a path meets again counts for the state.
local function explore_all(given, invariants)
  for _ = 1, MOST_ROUNDS do
    has_grown, nodes = false, {}
    trace.reset(MOST_RUNS)
    request.trace()
    local root = explore(given, invariants)
    if not has_grown then return root end
  end
  return nil
end

local function bytecode(f) return string.dump(f, true) end

-- Runs the file again, from its spread text. Raises an error unless that is the same program, with
-- a line for each place.
local function load_spread(text)
  budget.step("reading the file word by word")
  local spread_text, lines = spread.run(text)
  local env = sandbox.new(dsl.loam)
  local chunk = assert(load(spread_text, frame.chunk(), "t", env))
  assert(bytecode(chunk) == bytecode(assert(load(text, frame.chunk(), "t"))))
  assert(scan.has_line_for_each_question(chunk))
  frame.spread(lines)
  budget.step("running the file again")
  local given = dsl.policy(sandbox.load(chunk))
  local invariants = always.read(given.always, given.line)
  sandbox.seal(env, given.pick, given.tests, given.always)
  return given, invariants
end

local function close()
  site.connect_answers(nil)
  sandbox.reset()
  trace.reset(core.limits.max_leaves)
  request.close()
  frame.spread(nil)
  conditions, met, repeated, nodes, name_of = nil, nil, nil, nil, nil
end

-- Makes the graph of all paths of a policy that policy.lua has opened, from the text of its file.
---@return loam.PathNode|nil root; nil if the policy has too many paths
function path_graph.run(text)
  conditions, repeated, name_of = {}, {}, numbers.new()
  local ok, root = pcall(function()
    local given, invariants = load_spread(text)
    site.connect_answers(answered)
    return explore_all(given, invariants)
  end)
  close()
  if not ok and frame.is_final(root) then error(root, 0) end
  return ok and root or nil
end

return path_graph
