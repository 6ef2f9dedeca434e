-- trace.lua - runs a function once for each combination of outcomes of its conditions.
--
-- A replay runs the function from its start. A tape answers the conditions that were met before.
-- The first new condition that can go either way is a fork: its outcome is true, and after the
-- replays that lie below it, a replay gives it the outcome false. Forks become the inner nodes of a
-- decision tree, and results of the function become its leaves.
--
-- Until the end of a path, an outcome narrows the possible values of an input, or is kept as the
-- outcome of a computed condition. A condition with one possible outcome does not fork. A trail
-- records every such change, so that going back to a fork undoes exactly the changes that came
-- after it.

local budget = require("loam.compiler.budget")
local condition = require("loam.symbolic.condition")
local frame = require("loam.report.frame")
local request = require("loam.symbolic.request")
local site = require("loam.symbolic.site")
local symbol = require("loam.symbolic.symbol")

local trace = {}

-- The replay. `tape[i]` is condition number i of the run, `outcomes[i]` its outcome, and
-- `digits[i]` that outcome as "1" or "0". The first `taped` of them are answered from the tape;
-- `position` counts the conditions that the run has met so far.
local tape, outcomes, digits, position, taped = {}, {}, {}, 0, 0
local forks      -- of the present path, outermost first
local untried    -- forks whose outcome false is still to come: each brings one leaf or more
local branch     -- node and side that the next fork or leaf belongs to
local leaves     -- number of leaves of this tree so far
local outer      -- these variables of the exploration around this one; nil: there is none
local most_leaves = 1000
local guide      -- function(condition, position) -> outcome, in place of the tape
local told       -- function(text, outcome), called for each condition while trace.tell runs

-- ---- the trail

local trail_table, trail_key, trail_value, trail_top = {}, {}, {}, 0
local known = {} -- computed condition -> outcome

local function save(target, name)
  trail_top = trail_top + 1
  trail_table[trail_top], trail_key[trail_top] = target, name
  trail_value[trail_top] = target[name]
end

local function undo(mark)
  for i = trail_top, mark + 1, -1 do
    local target = trail_table[i]
    target[trail_key[i]] = trail_value[i]
    trail_table[i] = nil
  end
  trail_top = mark
end

local function settle(c, outcome)
  if c.complex then
    save(known, c)
    known[c] = outcome
    if c.residue then condition.apply(c.residue, outcome, save) end
  else
    condition.apply(c, outcome, save)
  end
end

local function possible(c)
  if c.const ~= nil then return c.const, not c.const end
  if not c.complex then return condition.possible(c) end
  if known[c] ~= nil then return known[c], not known[c] end
  if c.residue then return condition.possible_residue(c) end
  return true, true
end

-- ---- deciding

local function lines_that_fork(root)
  local count, lines = {}, {}
  local function visit(node)
    if not node or not node.condition then return end -- not explored yet, or a leaf
    local line = node.line or 0
    if not count[line] then lines[#lines + 1] = line end
    count[line] = (count[line] or 0) + 1
    visit(node.yes)
    visit(node.no)
  end
  visit(root)
  table.sort(lines, function(a, b)
    if count[a] ~= count[b] then return count[a] > count[b] end
    return a < b
  end)
  local words = {}
  for i = 1, math.min(3, #lines) do
    local n = count[lines[i]]
    words[i] = "line " .. lines[i] .. " forks " .. (n == 1 and "once" or n .. " times")
  end
  return table.concat(words, ", "), lines[1]
end

local function too_many()
  local words, line = lines_that_fork(branch.root.tree)
  return frame.refuse("leaves",
    "the decisions for one tag have more than " .. most_leaves .. " leaves: " .. words,
    "ask req.tag first: each tag has " .. most_leaves .. " leaves of its own; join cases that "
      .. "return one strategy; let no loop depend on the request; a program can raise max_leaves "
      .. "of loam_config", line)
end

local function impure()
  return frame.refuse("impure",
    "decision " .. position .. " of pick changed when pick ran again for one request",
    "let pick depend on its request only")
end

local function fork(c)
  if leaves + untried + 2 > most_leaves then too_many() end
  untried = untried + 1
  local node = { condition = c, line = frame.line() }
  branch.node[branch.side] = node
  branch.node, branch.side = node, "yes"
  forks[#forks + 1] = { node = node, position = position, mark = trail_top }
  settle(c, true)
  return true
end

local function choose(c)
  local yes, no = possible(c)
  local outcome = yes
  if yes and no then outcome = fork(c) end
  tape[position], outcomes[position], digits[position] = c, outcome, outcome and "1" or "0"
  taped = position
  return outcome
end

local function decide(c)
  position = position + 1
  if guide then
    local outcome = guide(c, position)
    if told and c.const == nil then told(c.text, outcome) end
    return outcome
  end
  if position > taped then return choose(c) end
  if tape[position] ~= c then impure() end
  return outcomes[position]
end

symbol.connect(decide)
request.connect(decide)

-- Returns the outcome of a condition that is none of symbol.lua, as for a comparison.
trace.decide = decide

---@return boolean whether the next condition of this run was not met by the runs before
function trace.is_ahead() return position == taped end

---@return table the node of the newest fork, whose outcome is true on the present path
function trace.newest_fork() return forks[#forks].node end

-- Returns a text that is equal for two paths if and only if they have settled the same about the
-- numbers of the request. Calls `name(value)` for the name of a condition; a condition whose name
-- is nil is left out.
function trace.settled(name)
  local parts, conditions = {}, {}
  for i, input in ipairs(request.inputs()) do
    local holes = {}
    for k in pairs(input.holes) do holes[#holes + 1] = k end
    table.sort(holes)
    parts[i] = string.format("%.17g %.17g %s", input.low, input.high, table.concat(holes, " "))
  end
  for c, outcome in pairs(known) do
    local word = name(c)
    if word then conditions[#conditions + 1] = word .. (outcome and "+" or "-") end
  end
  table.sort(conditions)
  return table.concat(parts, ",") .. ";" .. table.concat(conditions, ",")
end

-- ---- exploring

-- Turns the innermost fork whose outcome was true so far to false, for the next replay. Returns
-- false when no such fork is left.
local function turn()
  local last = forks[#forks]
  while last and last.turned do
    forks[#forks] = nil
    last = forks[#forks]
  end
  if not last then return false end
  last.turned = true
  untried = untried - 1
  undo(last.mark)
  settle(last.node.condition, false)
  outcomes[last.position], digits[last.position], taped = false, "0", last.position
  branch.node, branch.side = last.node, "no"
  return true
end

local function begin(within)
  tape, outcomes, digits, position, taped = {}, {}, {}, 0, 0
  forks, leaves, untried = {}, 0, 0
  outer = within
end

local function explore(run, arrive)
  local root = {}
  branch = { root = root, node = root, side = "tree" }
  repeat
    position = 0
    local result = run()
    if position ~= taped then impure() end
    leaves = leaves + 1
    branch.node[branch.side] = arrive(result)
  until not turn()
  return root.tree
end

-- Explores `run`. Calls `arrive(result)` at the end of each path, with everything settled as on
-- that path; it returns the leaf, and may start another exploration, which continues from there.
-- Returns the tree: nodes { condition, line, yes, no } and leaves.
function trace.explore(run, arrive)
  local saved = {
    tape = tape, outcomes = outcomes, digits = digits, position = position, taped = taped,
    forks = forks, branch = branch, leaves = leaves, untried = untried, outer = outer,
  }
  local mark = trail_top
  begin(saved)
  local tree = explore(run, arrive)
  undo(mark)
  tape, outcomes, digits = saved.tape, saved.outcomes, saved.digits
  position, taped = saved.position, saved.taped
  forks, branch, leaves, untried = saved.forks, saved.branch, saved.leaves, saved.untried
  outer = saved.outer
  return tree
end

-- Calls `visit(leaf)` for each leaf of a tree, with everything settled as on the path to that leaf.
function trace.walk(tree, visit)
  if not tree.condition then return visit(tree) end
  local mark = trail_top
  settle(tree.condition, true)
  trace.walk(tree.yes, visit)
  undo(mark)
  settle(tree.condition, false)
  trace.walk(tree.no, visit)
  undo(mark)
end

-- Ends all explorations, also after an error. `limit` is the most leaves that a tree may have; nil
-- keeps the limit.
function trace.reset(limit)
  undo(0)
  guide, told = nil, nil
  site.listen(nil)
  most_leaves = limit or most_leaves
  begin(nil)
end

-- ---- running one path again, for reports

---@return string the path of the present or the last run: a "1" or "0" for each condition
function trace.path()
  return table.concat(digits, "", 1, math.min(position, taped))
end

---@return string the path of the exploration around this one, from which this one continues
function trace.outer_path()
  return table.concat(outer.digits, "", 1, outer.position)
end

-- Makes a guide that follows a path of trace.path; every condition after its end is true.
function trace.along(path)
  return function(_, at) return string.byte(path, at) ~= 48 end
end

-- Makes a guide that computes each condition at a point (request.point).
function trace.at(point)
  local function read(input) return request.read(point, input) end
  return function(c) return condition.holds(c, read) end
end

local MOST_LINES = 1000000 -- that one run may execute; it has run within its budget before

-- Calls `run` and follows the policy's lines with a hook. Calls `visit(line)`, if it is given, for
-- each line of the policy that is executed. Returns the two results of pcall, and the last such
-- line. The hook finds that line even for `return f()`, a tail call, which leaves no frame of the
-- policy on the stack.
function trace.follow(run, visit)
  local last, count = nil, 0
  debug.sethook(function(_, line)
    count = count + 1
    if count > MOST_LINES then error("loam-budget: a retelling ran away", 0) end
    if debug.getinfo(2, "S").source ~= frame.chunk() then return end
    last = line
    if visit then visit(line) end
  end, "l")
  local ok, result = pcall(run)
  debug.sethook()
  budget.resume()
  return ok, result, last
end

-- Runs `run` once along a guide. Returns the story: a list { line, condition, holds, quotes_site }
-- of all conditions and observations in their order; the result or the error value; whether `run`
-- returned; and the line from which it returned.
function trace.tell(run, path_guide)
  local story, seen = {}, {}
  local function add(words, holds, quotes_site)
    local line = frame.line()
    local id = tostring(line) .. words
    if seen[id] then return end
    seen[id] = true
    story[#story + 1] = { line = line, condition = words, holds = holds, quotes_site = quotes_site }
  end
  local outer_guide, outer_position, outer_told = guide, position, told
  guide, position, told = path_guide, 0, add
  site.listen(function(observation, answer) add(site.describe(observation, answer)) end)
  local ok, result, line = trace.follow(run)
  site.listen(nil)
  guide, position, told = outer_guide, outer_position, outer_told
  return story, result, ok, line
end

-- Runs `run` once along a guide, without a story. Calls `visit(line)`, if it is given, for each
-- line of the policy that is executed. Returns the two results of pcall.
function trace.pass(run, path_guide, visit)
  local outer_guide, outer_position = guide, position
  guide, position = path_guide, 0
  local ok, result
  if visit then ok, result = trace.follow(run, visit) else ok, result = pcall(run) end
  guide, position = outer_guide, outer_position
  return ok, result
end

---@return table computed condition -> outcome, for those that the present path has settled
function trace.known() return known end

return trace
