-- test.lua - the answer to `test`: tests, invariants, and the leaves that tests reach.

local answer = require("loam.questions.answer")
local budget = require("loam.compiler.budget")
local json = require("loam.report.json")
local leaves = require("loam.questions.leaves")
local policy = require("loam.compiler.policy")
local tests = require("loam.language.tests")

local test = {}

local function run_tests(made)
  local results, errors, covered = json.array {}, {}, {}
  for i, one in ipairs(made.tests) do
    local chain, class = policy.try(one)
    if not chain then policy.merge(errors, class.errors) end
    if chain then covered[leaves.reached(class.made.tree, one.point)] = true end
    local expected, got = tests.compared(one, chain or one.expect, "")
    results[i] = {
      n = i, what = tests.words(one), line = tests.line(one), expect = expected,
      ok = chain ~= nil and tests.passes(one, chain), got = chain and got or nil,
    }
  end
  return results, errors, covered
end

local UNDECIDED = "not decided for every request, because pick or an invariant fails"

-- Reports for each invariant whether it holds in all classes. It does not if a class has no plan.
local function decide_always(made, classes)
  local results, is_whole = json.array {}, policy.is_whole()
  for i, invariant in ipairs(made.invariants) do
    results[i] = { name = invariant.name, ok = true, line = invariant.line }
    for _, class in ipairs(classes) do
      local found = class.made and class.made.violations[invariant]
      if found and results[i].ok then
        results[i].ok = false
        results[i].line = found.line
        results[i].what = string.format("strategy '%s' on line %d %s", found.member.name,
          found.line or 0, found.words)
      end
    end
    if results[i].ok and not is_whole then
      results[i].ok, results[i].what = false, UNDECIDED
    end
  end
  return results
end

-- Calls `visit(leaf, n, class)` for each leaf of the classes that have a plan. `n` counts them.
local function each_leaf(classes, visit)
  local n = 0
  for _, class in ipairs(classes) do
    if class.made then
      leaves.each(class.made.tree, function(leaf)
        n = n + 1
        visit(leaf, n, class)
      end)
    end
  end
end

local function cover(made, classes, covered)
  local total, hit = 0, 0
  each_leaf(classes, function(leaf)
    total = total + 1
    if covered[leaf] then hit = hit + 1 end
  end)
  local function each_missed(write)
    each_leaf(classes, function(leaf, n, class)
      if covered[leaf] then return end
      local row = leaves.row(made, class.where, leaf, n)
      write { line = row.line, tag = class.where.tag, conditions = row.conditions }
    end)
  end
  return { leaves = total, covered = hit, missed = each_missed }
end

local function all_ok(results)
  for _, result in ipairs(results) do
    if not result.ok then return false end
  end
  return true
end

function test.run(made)
  budget.step("running the tests")
  local results, errors, covered = run_tests(made)
  local faults = policy.compile_all()
  if policy.is_joined() then results, errors, covered = run_tests(made) end -- other classes now
  policy.merge(errors, faults)
  local classes = policy.classes()
  local invariants = decide_always(made, classes)
  answer.write {
    verb = "test", policy = answer.file_name(), tests = results, always = invariants,
    ok = all_ok(results) and all_ok(invariants) and #errors == 0,
    coverage = cover(made, classes, covered), errors = answer.objects(errors),
  }
  return true
end

return test
