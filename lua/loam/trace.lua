-- trace - runs a function once for each combination of outcomes of its conditions.
--
-- A replay runs the function from its start. Conditions met before are answered from a tape; the
-- first new one that could go either way is a fork: it answers true, and the replay after the last
-- one below it answers false there. The forks are the inner nodes of a decision tree, what the
-- function returned its leaves. What a path has settled (bounds of inputs, outcomes of conditions
-- that are computed) answers later conditions of the path without a fork; it is kept on a trail, so
-- that going back to a fork undoes exactly what came after it.

local budget = require("loam.budget")
local condition = require("loam.condition")
local here = require("loam.here")
local request = require("loam.request")
local site = require("loam.site")
local symbol = require("loam.symbol")

local trace = {}

-- The replay. `tape[i]` is the i-th condition met, `outcomes[i]` how it went; the first `taped` are
-- to be repeated. `digits[i]` is the outcome as "1" or "0".
local tape, outcomes, digits, position, taped = {}, {}, {}, 0, 0
local forks      -- of the present path, outermost first
local untried    -- how many of them have only been true: each will bring a leaf more
local branch     -- node and side that the next fork or leaf belongs to
local leaves     -- so far, of this tree
local outer      -- all of the above of the exploration that this one goes on from
local most_leaves = 1000
local guide      -- function(condition, position) -> outcome, in place of the tape
local told       -- function(words, outcome), while a path is narrated

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
  else
    condition.apply(c, outcome, save)
  end
end

local function possible(c)
  if c.const ~= nil then return c.const, not c.const end
  if not c.complex then return condition.possible(c) end
  if known[c] == nil then return true, true end
  return known[c], not known[c]
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
  return here.refuse("leaves",
    "the decisions have more than " .. most_leaves .. " leaves: " .. words,
    "test what matters most first and return early; no loop may depend on numbers of the request",
    line)
end

local function impure()
  return here.refuse("impure",
    "decision " .. position .. " changed between two runs on the same request",
    "pick may depend on its request only")
end

local function fork(c)
  if leaves + untried + 2 > most_leaves then too_many() end
  untried = untried + 1
  local node = { condition = c, line = here.line() }
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

symbol.connect(decide, site.value)
request.connect(decide)

-- ---- exploring

-- Turns the innermost fork that has only been true to false; false when there is none.
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

-- Explores `run`. `arrive(result)` makes the leaf of each path while what the path has settled is
-- still in force; it may explore on from there. Returns the tree: nodes { condition, line, yes,
-- no } and leaves.
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

-- Calls `visit(leaf)` for each leaf of a tree with what its path settles in force.
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

-- Forgets an exploration that ended in an error.
function trace.reset(limit)
  undo(0)
  guide, told = nil, nil
  site.listen(nil)
  most_leaves = limit or most_leaves
  begin(nil)
end

-- ---- retelling a path

---@return string outcomes of the path that is being run, or has just been: a "1" or "0" for each
-- condition
function trace.path()
  return table.concat(digits, "", 1, math.min(position, taped))
end

---@return string the path that the present exploration goes on from
function trace.outer_path()
  return table.concat(outer.digits, "", 1, outer.position)
end

-- A guide along a path from trace.path; past its end everything is true.
function trace.along(path)
  return function(_, at) return string.byte(path, at) ~= 48 end
end

-- A guide that computes each condition at a point (request.point).
function trace.at(point)
  local function read(input) return request.read(point, input) end
  return function(c) return condition.holds(c, read) end
end

local MOST_LINES = 1000000 -- executed in one retelling, which has run within its budget before

-- Calls `run`, following its lines: returns what pcall does, and the last line that it executed. A
-- function that the policy calls by `return f()` has no frame of the policy below it; this finds
-- its line all the same.
function trace.follow(run)
  local last, count = nil, 0
  debug.sethook(function(_, line)
    count = count + 1
    if count > MOST_LINES then error("loam-budget: a retelling ran away", 0) end
    if debug.getinfo(2, "S").source == here.chunk() then last = line end
  end, "l")
  local ok, result = pcall(run)
  debug.sethook()
  budget.resume()
  return ok, result, last
end

-- Runs `run` once along a guide, and tells every condition and observation it meets, in order and
-- with its line. Returns the story ({ line, condition, holds }...), what was returned or raised,
-- whether it returned, and the line it returned from.
function trace.tell(run, path_guide)
  local story, seen = {}, {}
  local function add(words, holds)
    local line = here.line()
    local id = tostring(line) .. words
    if seen[id] then return end
    seen[id] = true
    story[#story + 1] = { line = line, condition = words, holds = holds }
  end
  local outer_guide, outer_position, outer_told = guide, position, told
  guide, position, told = path_guide, 0, add
  site.listen(function(observation, answer) add(site.describe(observation, answer)) end)
  local ok, result, line = trace.follow(run)
  site.listen(nil)
  guide, position, told = outer_guide, outer_position, outer_told
  return story, result, ok, line
end

---@return table computed condition -> outcome, as the present path has settled it
function trace.known() return known end

return trace
