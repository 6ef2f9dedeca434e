-- policy.lua - one loaded policy: read, compiled for each class of sites, tested.
--
-- A Lua state has one. Its functions return faults of the policy as diagnostics. An error that they
-- raise is core's own (the budget, memory) or a fault of loam.

local all_classes = require("loam.compiler.all_classes")
local always = require("loam.compiler.always")
local budget = require("loam.compiler.budget")
local class_graph = require("loam.compiler.class_graph")
local class_tree = require("loam.compiler.class_tree")
local compile = require("loam.compiler.compile")
local core = require("loam.core")
local diag = require("loam.report.diag")
local dsl = require("loam.language.dsl")
local frame = require("loam.report.frame")
local join_check = require("loam.compiler.join_check")
local path_graph = require("loam.compiler.path_graph")
local sandbox = require("loam.language.sandbox")
local scan = require("loam.compiler.scan")
local site = require("loam.symbolic.site")
local site_classes = require("loam.compiler.site_classes")
local site_search = require("loam.compiler.site_search")
local source = require("loam.language.source")
local strategy = require("loam.language.strategy")
local tests = require("loam.language.tests")
local trace = require("loam.compiler.trace")

local policy = {}

---@class loam.Policy
---@field name string
---@field apply string "new" or "live"
---@field pick function
---@field line integer of pick
---@field invariants loam.Invariant[]
---@field constants number[] of pick and of the functions and tables that it reaches
---@field tests table[]
---@field text string of the file
local current

---@class loam.Class a class of sites, compiled or refused
---@field plan any
---@field reads_live boolean
---@field where table the site for which it was compiled
---@field leaves table[]
---@field errors loam.Diagnostic[]|nil
---@field made loam.Compiled|nil kept for questions/inspect.lua

local trie     -- loam.Classes with each loam.Class
local classes  -- every loam.Class so far, in the order in which they were compiled
local has_all  -- whether compile_all has found all classes
local faults   -- the result of policy.compile_all; nil before
local questions -- loam.Observation that sites were asked, by number and as keys; and `answers`
local by_plan  -- plan -> keys of leaves -> leaves
local KEEPS = { trees = true, paths = true }
local keep     -- what is kept for questions/inspect.lua: see policy.open

-- ---- opening

local ran -- the chunk of the file; nil until it is loaded

-- Runs the file again to find the line at which it ends, for an error without a line.
local function last_line()
  local _, _, line = trace.follow(function()
    return sandbox.load(setfenv(ran, sandbox.new(dsl.loam)))
  end)
  sandbox.reset()
  return line
end

local function run_file(text, env)
  local chunk, message = load(text, frame.chunk(), "t", env)
  if not chunk then error(message, 0) end
  ran = chunk
  local returned = dsl.policy(sandbox.load(chunk))
  if not returned then
    frame.refuse("policy", "the file does not return a policy",
      "end the file with return loam.policy{…}")
  end
  return returned
end

-- Says what to write where an invariant asks the request for a field of the strategy.
local function advise_on_got(d)
  local field = d.class == "field" and string.match(d.reason, "^req has no field '(.*)'$")
  if field and strategy.is_field(field) then
    d.suggestion = "got has it: write function(req, got) and got." .. field
  end
  return d
end

local function scanned(given, invariants, env)
  local errors, constants = scan.check(given.pick, env)
  for _, invariant in ipairs(invariants) do
    local subject = "always \"" .. invariant.name .. "\""
    for _, d in ipairs((scan.check(invariant.holds, env, subject))) do
      errors[#errors + 1] = advise_on_got(d)
    end
  end
  return errors, constants
end

local function read(text)
  source.check(text)
  local env = sandbox.new(dsl.loam)
  local given = run_file(text, env)
  local invariants = always.read(given.always, given.line)
  sandbox.seal(env, given.pick, given.tests, given.always)
  local errors, constants = scanned(given, invariants, env)
  if #errors > 0 then
    for _, d in ipairs(errors) do diag.suggest_by_text(d, text) end
    return { errors = errors }
  end
  return {
    name = given.name or "", apply = given.apply,
    pick = given.pick, invariants = invariants, constants = constants,
    line = debug.getinfo(given.pick, "S").linedefined, keeps = keep,
    tests = tests.read(given.tests, text), text = text,
  }
end

-- Returns the line of the entry of loam.policy{…} that a reason is about, or nil.
local function entry_line(reason, text)
  local key = string.match(reason, "^loam%.policy has no '([%w_]+)'")
    or string.match(reason, "^%w+")
  return key and source.entry_line(text, key)
end

-- Makes the diagnostic of an error that was raised while the file was read.
local function unread(problem, text)
  if frame.is_final(problem) then error(problem, 0) end
  local d = frame.diagnose(problem)
  if not ran then diag.explain_syntax(d, text) end
  diag.suggest_by_text(d, text)
  if ran and not d.line then d.line = entry_line(d.reason, text) or last_line() end
  return d
end

-- Opens a policy from the text of its file. `kept` is what each class keeps in its field `made`:
-- nil: no tree; "trees": the traced tree; "paths": a tree in which each leaf has its path;
-- "unchecked": no tree, and the plan is not compared with plain Lua. The last is for a policy that
-- was compiled before, by another query.
---@param kept string|nil
---@return loam.Policy|nil, loam.Diagnostic[]|nil
function policy.open(file_name, text, kept)
  trie, classes, by_plan, keep = site_classes.new(), {}, {}, kept
  questions = { answers = 0 }
  current, faults = nil, nil
  frame.open(file_name)
  strategy.reset()
  dsl.reset()
  trace.reset(core.limits.max_leaves)
  budget.step("running the file")
  ran = nil
  local ok, made = pcall(read, text)
  sandbox.reset()
  if not ok then return nil, { unread(made, text) } end
  if made.errors then return nil, made.errors end
  current = made
  return made
end

-- ---- compiling

-- Returns one list of leaves for all classes that have equal plans and equal chains. Equal plans
-- can have different chains, if this machine lacks the devices in which the chains differ.
local function shared_leaves(made)
  local lists = by_plan[made.plan] or {}
  by_plan[made.plan] = lists
  local keys = {}
  for i, leaf in ipairs(made.leaves) do keys[i] = leaf.key end
  local id = table.concat(keys, ";")
  lists[id] = lists[id] or made.leaves
  return lists[id]
end

local function class_of(where)
  local made, problem = compile.run(current, where, #classes + 1)
  if not made then return { errors = { problem }, where = where } end
  local errors = compile.violated(current, made)
  return {
    plan = made.plan, reads_live = made.reads_live, leaves = shared_leaves(made),
    errors = #errors > 0 and errors or nil, made = KEEPS[keep] and made or nil, where = where,
  }
end

-- Counts the answers, other than no, of the questions that were not counted before.
local function count_questions(asked)
  for at = 1, #asked, 2 do
    local observation = asked[at]
    if not questions[observation] then
      questions[observation] = true
      questions[#questions + 1] = observation
      questions.answers = questions.answers + #site_search.answers(observation) - 1
    end
  end
end

-- Returns the class of a site; compiles it if it is new.
---@return loam.Class
function policy.class(where)
  local class = site_classes.find(trie, where)
  if class then return class end
  class = class_of(where)
  classes[#classes + 1] = class
  count_questions(site.asked())
  site_classes.store(trie, where, site.asked(), class)
  return class
end

-- ---- tests and all classes

-- Adds those of `errors` that `list` does not have yet: many classes may have one fault.
function policy.merge(list, errors)
  for _, d in ipairs(errors or {}) do
    local id = tostring(d.line) .. d.class .. d.reason
    if not list[id] then
      list[id] = true
      list[#list + 1] = d
    end
  end
end

-- Runs one of the policy's tests on its plan. Returns the chain, or nil if the plan was refused;
-- and the class.
function policy.try(test)
  local class = policy.class(test.where)
  if not class.plan then return nil, class end
  return class.leaves[core.decide(class.plan, test.point) + 1].chain, class
end

local function failure(test)
  local chain, class = policy.try(test)
  if class.errors then return class.errors end
  if tests.passes(test, chain) then return nil end
  local story, _, line = compile.tell(current, test.where, test.point)
  return { tests.failure(test, chain, story, line) }
end

local MOST_CLASSES = 4096
local MOST_FAULTS = 20 -- that are shown of one policy

-- If there are more than `least` classes, and more than `per_answer` for each answer of a question,
-- those that all paths of pick treat alike are joined. Tests change these numbers.
policy.joins = { least = 64, per_answer = 4 }

local function is_separate()
  return #classes <= math.max(policy.joins.least, policy.joins.per_answer * questions.answers)
end

local function is_within() return #classes <= MOST_CLASSES end

local SHOWN_QUESTIONS = 3

-- Returns the questions of pick in words.
local function questions_text()
  local words = {}
  for i = 1, math.min(#questions, SHOWN_QUESTIONS) do
    local observation = questions[i]
    words[i] = observation.text
      or ("a table of %d keys for %s"):format(#observation.about.words, observation.name)
  end
  local more = #questions - #words
  if more > 0 then words[#words + 1] = more .. " more" end
  local last = table.remove(words)
  return #words == 0 and last or table.concat(words, ", ") .. " and " .. last
end

local function too_many_classes()
  return diag.new {
    line = current.line, class = "classes",
    reason = "pick tells more than " .. MOST_CLASSES .. " classes of tags apart, because it "
      .. "decides otherwise for most combinations of answers to its questions: it asks "
      .. questions_text(),
    suggestion = "return a strategy as soon as one question is answered, and ask in the `if` that "
      .. "needs the answer, not before it; compare req.size with one number in all of them; give "
      .. "keys of a table that are treated alike one value",
  }
end

-- Compiles for the empty tag, for the sites of the tests, and then for every other class of sites.
-- So reports name classes by the tags of the tests where there are any. Adds the faults to
-- `errors`. Stops when `goes_on()` returns false.
local function compile_classes(errors, goes_on)
  local function compiled(where)
    policy.merge(errors, policy.class(where).errors)
    return goes_on() and #errors < MOST_FAULTS
  end
  local is_going = compiled { tag = "" }
  for _, test in ipairs(current.tests) do is_going = is_going and compiled(test.where) end
  if is_going then all_classes.find(trie, compiled) end
end

-- Begins again with classes that differ in what pick decides, and not only in answers; unless the
-- policy has too many paths for that. Returns false if there are too many classes.
local function join_classes()
  local root = path_graph.run(current.text)
  if root then trie, classes, by_plan = class_graph.run(root), {}, {} end
  return not all_classes.are_far_too_many(trie, policy.class)
end

-- Compares joined classes with plain Lua. Returns a diagnostic if they differ.
local function wrong_join()
  local difference, where = join_check.run(current, trie)
  return difference and diag.new {
    line = current.line, class = "mismatch",
    reason = ("tags were joined that pick does not treat alike: %s, with tag \"%s\", file \"%s\", "
      .. "function \"%s\" and module \"%s\""):format(difference, where.tag, where.file, where.func,
      where.module),
    suggestion = "this is a fault of loam: report it with the policy; a policy of less than 64 "
      .. "classes of tags joins none",
  }
end

-- Compiles for every class of sites; once.
---@return loam.Diagnostic[] faults
function policy.compile_all()
  if faults then return faults end
  local errors = {}
  compile_classes(errors, is_separate)
  local is_possible = true
  if not is_separate() and #errors < MOST_FAULTS then
    is_possible = join_classes()
    if trie.grow then errors = {} end -- the joined classes have these faults too
    if is_possible then compile_classes(errors, is_within) end
  end
  has_all = is_possible and is_within() and #errors < MOST_FAULTS
  if #errors == 0 and not has_all then errors[1] = too_many_classes() end
  if #errors == 0 and trie.grow and keep ~= "unchecked" then errors[1] = wrong_join() end
  faults = errors
  return errors
end

---@return boolean true if each class has a plan, after a policy.compile_all: then the invariants
---  are decided for every request
function policy.is_whole()
  for _, class in ipairs(classes) do
    if not class.plan then return false end
  end
  return has_all
end

---@return boolean whether a class may have sites that take different ways through pick to one
---  decision, after a policy.compile_all
function policy.is_joined() return trie.grow ~= nil end

-- Returns the tree of all classes for core, and its plans, after a policy.compile_all without
-- faults.
---@return string, any[]
function policy.tree()
  budget.step("writing the tree of tags")
  return class_tree.run(trie)
end

---@return table the root of the trie of site_classes.lua, after a policy.compile_all without faults
function policy.root() return trie.root end

---@return loam.Class[] all classes so far, in the order in which they were compiled
function policy.classes() return classes end

-- Compiles for all classes and runs the tests.
---@return loam.Diagnostic[]
function policy.vet()
  local errors = policy.compile_all()
  if #errors > 0 then return errors end
  budget.step("running the tests")
  for _, test in ipairs(current.tests) do policy.merge(errors, failure(test)) end
  return errors
end

return policy
