-- driver - one loaded policy: opens the file, gives the plan of a site, vets, inspects.
--
-- What core calls. Everything wrong with a policy comes back as words; an error that leaves these
-- functions is core's own (a budget, memory) or a fault of loam.

local always = require("loam.always")
local budget = require("loam.budget")
local classes = require("loam.classes")
local compile = require("loam.compile")
local core = require("loam.core")
local diag = require("loam.diag")
local dsl = require("loam.dsl")
local here = require("loam.here")
local literals = require("loam.literals")
local sandbox = require("loam.sandbox")
local scan = require("loam.scan")
local site = require("loam.site")
local source = require("loam.source")
local tests = require("loam.tests")
local trace = require("loam.trace")

local driver = {}

local policy   -- loam.Policy: name, pick, line, invariants, constants, tests
local file     -- { name, text }
local trie     -- class -> { plan, reads_live, leaves } or { errors }
local named    -- tags that the policy's questions name
local by_plan  -- plan -> leaves

local function words(list)
  return diag.render(list, file.name, diag.lines(file.text))
end

-- ---- opening

local function is_final(problem)
  return diag.is_budget(problem) or problem == "not enough memory"
end

-- Runs `f` and turns what it raises into a list of diagnostics.
local function caught(f)
  local ok, result = pcall(f)
  sandbox.reset()
  if ok then return result end
  if is_final(result) then error(result, 0) end
  return nil, { diag.from_error(result) }
end

local function run_file(env)
  local chunk, message = load(file.text, here.CHUNK, "t", env)
  if not chunk then error(message, 0) end
  local returned = dsl.policy(sandbox.load(chunk))
  if not returned then
    here.refuse("policy", "the file does not return a policy", "end it with return loam.policy{…}")
  end
  return returned
end

-- What pick and the invariants may read as globals, as scan wants it: without the metatable that
-- refuses names that are not there.
local function plain_globals(env)
  local copy = {}
  for name, value in next, env do copy[name] = value end
  return copy
end

local function scanned(given, invariants, env)
  local globals = plain_globals(env)
  local errors, constants = scan.check(given.pick, globals)
  for _, invariant in ipairs(invariants) do
    for _, d in ipairs((scan.check(invariant.holds, globals))) do errors[#errors + 1] = d end
  end
  return errors, constants
end

local function read_policy()
  source.check(file.text)
  local env = sandbox.new(dsl.loam)
  local given = run_file(env)
  local invariants = always.read(given.always, given.line)
  sandbox.seal(env, given.pick, given.tests, given.always)
  local errors, constants = scanned(given, invariants, env)
  local made = {
    name = given.name or "", pick = given.pick, invariants = invariants, constants = constants,
    line = debug.getinfo(given.pick, "S").linedefined,
  }
  if #errors == 0 then made.tests = tests.read(given.tests, source.test_lines(file.text)) end
  return { policy = made, errors = errors }
end

-- Opens a file; returns the policy, or nil and a list of diagnostics.
local function open(name, text)
  file = { name = name, text = text }
  trie, named, by_plan, policy = classes.new(), literals.new(), {}, nil
  trace.reset(core.limits.max_leaves)
  budget.step("running the file")
  local read, errors = caught(read_policy)
  if not read then return nil, errors end
  if #read.errors > 0 then return nil, read.errors end
  policy = read.policy
  return policy
end

-- ---- compiling

local function class_of(where)
  local made, problem = compile.run(policy, where)
  if not made then return { errors = { problem } } end
  local errors = compile.violated(policy, made)
  if #errors > 0 then return { errors = errors, made = made } end
  by_plan[made.plan] = by_plan[made.plan] or made.leaves
  return { plan = made.plan, reads_live = made.reads_live, leaves = by_plan[made.plan] }
end

local function lookup(where)
  local found = classes.find(trie, where)
  if found then return found end
  local class = class_of(where)
  local asked = site.asked()
  literals.add(named, where.tag, asked)

  classes.store(trie, asked, class)
  return class
end

-- Adds `errors` that are not yet in `list`: many classes may have the same fault.
local function merge(list, errors)
  for _, d in ipairs(errors) do
    local id = tostring(d.line) .. d.class .. d.reason
    if not list[id] then
      list[id] = true
      list[#list + 1] = d
    end
  end
end

-- ---- vetting

local function failure(test, class)
  if class.errors then return class.errors end
  local chain = class.leaves[core.decide(class.plan, test.point) + 1].chain
  if tests.passes(test, chain) then return {} end
  local story, _, line = compile.tell(policy, test.where, test.point)
  return { tests.failure(test, chain, story, line) }
end

local function vet()
  local errors = {}
  for _, test in ipairs(policy.tests) do merge(errors, failure(test, lookup(test.where))) end
  merge(errors, lookup({ tag = "" }).errors or {})
  local i = 1
  while named.list[i] do
    merge(errors, lookup({ tag = named.list[i] }).errors or {})
    i = i + 1
  end
  return errors
end

-- ---- what core calls

-- Loads and checks a file, given as its text.
function driver.open(name, text)
  local made, errors = open(name, text)
  if made then return true end
  return nil, words(errors)
end

---@return string the policy's name, "" if it has none
function driver.name()
  return policy and policy.name or ""
end

---@param where table tag, file, func, module (strings) and line
---@return any plan, boolean|string reads_live; or nil and words
function driver.plan(where)
  local class = lookup(where)
  if class.errors then return nil, words(class.errors) end
  return class.plan, class.reads_live
end

-- Runs the policy's tests and compiles for every tag that its questions name; invariants are
-- decided with each plan that is made.
function driver.vet()
  local errors = vet()
  if #errors == 0 then return true end
  return nil, words(errors)
end

return driver
