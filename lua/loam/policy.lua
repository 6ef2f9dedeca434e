-- policy - one loaded file: read, compiled for each class of sites, vetted.
--
-- There is one in a state. Everything wrong with it comes back as diagnostics; an error that leaves
-- these functions is core's own (a budget, memory) or a fault of loam.

local always = require("loam.always")
local budget = require("loam.budget")
local classes = require("loam.classes")
local compile = require("loam.compile")
local core = require("loam.core")
local dsl = require("loam.dsl")
local here = require("loam.here")
local literals = require("loam.literals")
local sandbox = require("loam.sandbox")
local scan = require("loam.scan")
local site = require("loam.site")
local source = require("loam.source")
local strategy = require("loam.strategy")
local tests = require("loam.tests")
local trace = require("loam.trace")

local policy = {}

---@class loam.Policy
---@field name string
---@field apply string "new" or "live"
---@field pick function
---@field line integer of pick
---@field invariants loam.Invariant[]
---@field constants number[] of pick and what it reaches
---@field tests table[]
local current

---@class loam.Class of sites: what was made for them, or why nothing was
---@field plan any
---@field reads_live boolean
---@field is_only boolean nothing was asked about a site, so that all are of this class
---@field leaves table[]
---@field errors loam.Diagnostic[]|nil
---@field made loam.Compiled|nil kept for inspect

local trie     -- class -> loam.Class
local named    -- tags that the policy's questions name
local by_plan  -- plan -> keys of leaves -> leaves
local keep     -- whole trees stay, for inspect

-- ---- opening

local ran -- the file's chunk, once it has been run

-- The line at which a run of the file ends, for an error that does not know its own.
local function last_line()
  local _, _, line = trace.follow(function()
    return sandbox.load(setfenv(ran, sandbox.new(dsl.loam)))
  end)
  sandbox.reset()
  return line
end

local function run_file(text, env)
  local chunk, message = load(text, here.chunk(), "t", env)
  if not chunk then error(message, 0) end
  ran = chunk
  local returned = dsl.policy(sandbox.load(chunk))
  if not returned then
    here.refuse("policy", "the file does not return a policy",
      "end it with return loam.policy{…}")
  end
  return returned
end

local function scanned(given, invariants, env)
  local errors, constants = scan.check(given.pick, env)
  for _, invariant in ipairs(invariants) do
    for _, d in ipairs((scan.check(invariant.holds, env))) do errors[#errors + 1] = d end
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
  if #errors > 0 then return { errors = errors } end
  return {
    name = given.name or "", apply = given.apply,
    pick = given.pick, invariants = invariants, constants = constants,
    line = debug.getinfo(given.pick, "S").linedefined, keeps_trees = keep,
    tests = tests.read(given.tests, text),
  }
end

-- The diagnostic of what reading a file raised.
local function unread(problem)
  if here.is_final(problem) then error(problem, 0) end
  local d = here.diagnose(problem)
  if ran and not d.line then d.line = last_line() end
  return d
end

-- Opens a file, given as its text; `keep_trees` for inspect.
---@return loam.Policy|nil, loam.Diagnostic[]|nil
function policy.open(file_name, text, keep_trees)
  trie, named, by_plan, keep, current = classes.new(), literals.new(), {}, keep_trees, nil
  here.open(file_name)
  strategy.reset()
  trace.reset(core.limits.max_leaves)
  budget.step("running the file")
  ran = nil
  local ok, made = pcall(read, text)
  sandbox.reset()
  if not ok then return nil, { unread(made) } end
  if made.errors then return nil, made.errors end
  current = made
  return made
end

-- ---- compiling

-- One list of leaves for all classes of a plan whose leaves end in the same chains, which is all
-- of them but where this machine lacks what tells the chains apart.
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
  local made, problem = compile.run(current, where)
  if not made then return { errors = { problem } } end
  local errors = compile.violated(current, made)
  return {
    plan = made.plan, reads_live = made.reads_live, leaves = shared_leaves(made),
    errors = #errors > 0 and errors or nil, made = keep and made or nil,
  }
end

-- The class of a site, compiled if it is a new one.
---@return loam.Class
function policy.class(where)
  local class = classes.find(trie, where)
  if class then return class end
  class = class_of(where)
  literals.add(named, where.tag, site.asked())
  class.is_only = #site.asked() == 0
  classes.store(trie, site.asked(), class)
  return class
end

-- ---- vetting

-- Adds `errors` that are not yet in `list`: many classes may have the same fault.
function policy.merge(list, errors)
  for _, d in ipairs(errors or {}) do
    local id = tostring(d.line) .. d.class .. d.reason
    if not list[id] then
      list[id] = true
      list[#list + 1] = d
    end
  end
end

-- Runs one of the policy's tests on its plan: the chain it gets, nil where that is refused.
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

-- The tags that a load compiles for, whatever the host knows: the empty one, those of the tests,
-- and those that the policy's questions name. Compiling for one may name more.
function policy.each_tag(visit)
  local seen = {}
  local function once(where)
    if seen[where.tag] then return end
    seen[where.tag] = true
    visit(where.tag, policy.class(where))
  end
  once { tag = "" }
  for _, test in ipairs(current.tests) do once(test.where) end
  local i = 1
  while named.list[i] do
    once { tag = named.list[i] }
    i = i + 1
  end
end

-- Runs the tests, and compiles for every tag that the policy names.
---@return loam.Diagnostic[]
function policy.vet()
  budget.step("running the tests")
  local errors = {}
  for _, test in ipairs(current.tests) do policy.merge(errors, failure(test)) end
  policy.each_tag(function(_, class) policy.merge(errors, class.errors) end)
  return errors
end

return policy
