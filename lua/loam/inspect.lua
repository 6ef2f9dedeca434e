-- inspect - what `loam check`, `explain`, `plan` and `test` print, as JSON.

local budget = require("loam.budget")
local compile = require("loam.compile")
local condition = require("loam.condition")
local core = require("loam.core")
local diag = require("loam.diag")
local json = require("loam.json")
local lines = require("loam.lines")
local options = require("loam.options")
local policy = require("loam.policy")
local request = require("loam.request")
local strategy = require("loam.strategy")
local tests = require("loam.tests")

local inspect = {}

local KEYS = {
  "verb", "policy", "ok", "name", "n", "tag", "size", "strategy", "kind", "what", "line", "got",
  "expect", "chain", "leaves", "covered", "missed", "rows", "conditions", "condition", "holds",
  "path", "generation", "tags", "strategies", "tests", "always", "coverage", "errors", "warnings",
  "file", "class", "reason", "source", "led", "suggestion", "hash",
}

local file -- { name, text, lines }

local function write(object)
  core.write(json.encode(object, KEYS) .. "\n")
end

local function objects(list)
  local out = json.array {}
  for i, d in ipairs(list) do out[i] = diag.object(d, file.name, file.lines) end
  return out
end

local function refused(verb, errors)
  write { verb = verb, policy = file.name, ok = false, errors = objects(errors) }
end

local function steps(story)
  local out = json.array {}
  for i, step in ipairs(story) do
    out[i] = { line = step.line, condition = step.condition, holds = step.holds }
  end
  return out
end

local function list(items)
  local out = json.array {}
  for i, item in ipairs(items) do out[i] = item end
  return out
end

local function first_name(chain) return strategy.names(chain)[1] end

-- ---- the query

local STRINGS = { tag = true, file = true, func = true, module = true, batch = true }
local RANGES = { size = { 0, 2 ^ 47 }, align = { 1, 2 ^ 47 }, node = { 0, 63 }, device = { -1, 63 },
                 live = { 0, 2 ^ 52 }, line = { 0, 2 ^ 31 - 1 } }

local function number(key, text)
  local value, range = tonumber(text), RANGES[key]
  if not value or value ~= math.floor(value) or value < range[1] or value > range[2] then
    return nil, string.format("%s '%s': it is a whole number from %d to %.0f", key, text, range[1],
      range[2])
  end
  if key == "align" and math.frexp(value) ~= 0.5 then
    return nil, "align '" .. text .. "': it is a power of two"
  end
  return value
end

-- One line of a query, into `asked`; nil and words if it is not valid.
local function add(asked, key, text)
  if STRINGS[key] then
    asked[key] = text
    if key == "tag" then asked.tags[#asked.tags + 1] = text end
  elseif key == "zero" then
    if text ~= "0" and text ~= "1" then return nil, "zero '" .. text .. "': it is 0 or 1" end
    asked.zero = text == "1"
  elseif RANGES[key] then
    local value, message = number(key, text)
    if not value then return nil, message end
    asked[key] = value
  elseif key == "verb" then
    asked.verb = text
  else
    return nil, "a query has no key '" .. key .. "'"
  end
  return true
end

local function parse(query)
  local asked = { tags = {}, zero = false }
  for line in string.gmatch(query, "[^\n]+") do
    local key, text = string.match(line, "^(%w+) ?(.*)$")
    if not key then return nil, "a query is lines of `key value`, not '" .. line .. "'" end
    local ok, message = add(asked, key, text)
    if not ok then return nil, message end
  end
  return asked
end

local function where_of(asked, tag)
  return { tag = tag or asked.tag or "", file = asked.file, func = asked.func,
           module = asked.module, line = asked.line }
end

local function point_of(asked, size)
  local point = request.point(size)
  for _, key in ipairs { "align", "node", "device", "live" } do
    point[key] = asked[key] or point[key]
  end
  point.zero = asked.zero
  point.node_free = core.free()
  return point
end

-- ---- explain

-- The leaf of a traced tree that a request reaches.
local function reached(tree, point)
  local function read(input) return request.read(point, input) end
  while tree.condition do tree = condition.holds(tree.condition, read) and tree.yes or tree.no end
  return tree
end

local MOST_KEPT = 256 -- stories
local kept = 0

-- How the leaf that a request reaches is reached. Of a class, all requests that reach a leaf tell
-- the same story, so a long batch tells each once.
local function story_of(made, class, where, point)
  local leaf = reached(class.made.tree, point)
  if leaf.told then return leaf.told end
  local story, chain, line = compile.tell(made, where, point)
  if not story then return nil, { chain } end
  local told = {
    chain = chain, names = list(strategy.names(chain)), line = line, path = steps(story),
    strategy = strategy.report(strategy.members(chain)[1]),
  }
  if kept < MOST_KEPT then
    leaf.told, kept = told, kept + 1
  end
  return told
end

local function explained(made, where, point)
  local class = policy.class(where)
  if class.errors then return nil, class.errors end
  budget.step("explaining tag '" .. where.tag .. "', size " .. string.format("%d", point.size))
  local told, errors = story_of(made, class, where, point)
  if not told then return nil, errors end
  if not compile.agrees(class, point, told.chain) then
    return nil, { diag.new { line = told.line, class = "internal", reason = "the plan answers "
      .. "otherwise for " .. request.words(point) } }
  end
  return {
    tag = where.tag, size = point.size, strategy = told.strategy, chain = told.names,
    line = told.line, path = told.path, generation = 1,
  }
end

-- A line of a batch: tag<TAB>size[<TAB>align[<TAB>zero]].
local function batch_line(made, asked, text)
  local fields = {}
  for field in string.gmatch(text .. "\t", "([^\t]*)\t") do fields[#fields + 1] = field end
  if #fields < 2 or #fields > 4 then
    return nil, "a line is tag<TAB>size[<TAB>align[<TAB>zero]], not '" .. text .. "'"
  end
  local one = {
    tags = {}, zero = false, node = asked.node, live = asked.live, device = asked.device,
    file = asked.file, func = asked.func, module = asked.module, line = asked.line,
  }
  for i, key in ipairs { "tag", "size", "align", "zero" } do
    if fields[i] and (i < 3 or fields[i] ~= "") then
      local ok, message = add(one, key, fields[i])
      if not ok then return nil, message end
    end
  end
  local answer, errors = explained(made, where_of(one), point_of(one, one.size))
  if answer then return answer end
  return { tag = one.tag, size = one.size, ok = false, errors = objects(errors) }
end

local function explain_batch(made, asked)
  local n = 0
  return lines.each(asked.batch, function(text)
    n = n + 1
    local answer, message = batch_line(made, asked, text)
    if answer then
      write(answer)
    else
      write { ok = false, errors = objects { diag.new {
        file = asked.batch, line = n, class = "batch", reason = message } } }
    end
  end)
end

local VERBS = {}

function VERBS.explain(made, asked)
  if asked.batch then return explain_batch(made, asked) end
  if not asked.size then return nil, "explain needs a size" end
  local answer, errors = explained(made, where_of(asked), point_of(asked, asked.size))
  if answer then write(answer) else refused("explain", errors) end
  return true
end

-- ---- plan

-- Calls `visit` for each leaf of a tree, in the order of its paths.
local function each_leaf(node, visit)
  if not node.condition then return visit(node) end
  each_leaf(node.yes, visit)
  each_leaf(node.no, visit)
end

local function row_of(made, where, leaf, n)
  budget.step("telling leaf " .. n .. " of tag '" .. where.tag .. "'")
  local story, chain, line = compile.tell_path(made, where, leaf.path)
  return { conditions = steps(story), strategy = first_name(chain),
           chain = list(strategy.names(chain)), line = line }
end

function VERBS.plan(made, asked)
  local where = where_of(asked)
  local class = policy.class(where)
  if class.errors then
    refused("plan", class.errors)
    return true
  end
  local rows = json.array {}
  each_leaf(class.made.tree, function(leaf)
    rows[#rows + 1] = row_of(made, where, leaf, #rows + 1)
  end)
  write {
    verb = "plan", policy = file.name, ok = true, tag = where.tag, leaves = #rows, rows = rows,
  }
  return true
end

-- ---- check

-- Why the kernel, or a container, does not let a strategy be what it asks to be.
local function refusal_of(values)
  local numa = values.numa
  if not (numa or values.prefault or values.lock or values.huge) then return nil end
  local refused_here, places = core.refused(), #options.machine().nodes > 1
  if refused_here.numa and places and numa and numa.mode ~= "local" then
    return "placing memory (mbind) is refused here: only an or_else would serve"
  end
  if refused_here.prefault and values.prefault then
    return "taking memory beforehand (madvise) is refused here: only an or_else would serve"
  end
  if refused_here.lock and values.lock then
    return "locking memory (mlock) is refused here: only an or_else would serve"
  end
  if refused_here.huge and values.huge == "thp" then
    return "asking for huge pages (madvise) is refused here: it will have small ones"
  end
  return nil
end

-- What may disappoint here although the policy is right.
local function warning_of(member)
  local machine, values = options.machine(), member.values
  if member.reason then return member.reason .. "; its fallback serves instead" end
  if values.huge == "thp" and machine.thp == "never" then
    return "transparent huge pages are switched off here "
      .. "(/sys/kernel/mm/transparent_hugepage/enabled is never)"
  end
  if values.lock and machine.memlock < 2 ^ 20 then
    return "at most " .. machine.memlock .. " bytes may be locked here (ulimit -l)"
  end
  return refusal_of(values)
end

local function declared()
  local reports, warnings = json.array {}, {}
  for i, member in ipairs(strategy.declared()) do
    reports[i] = strategy.report(member)
    local reason = warning_of(member)
    if reason then
      warnings[#warnings + 1] = diag.new {
        line = member.line, class = "machine",
        reason = "strategy '" .. member.name .. "': " .. reason,
      }
    end
  end
  return reports, objects(warnings)
end

local function count_leaves(tree)
  local n = 0
  each_leaf(tree, function() n = n + 1 end)
  return n
end

function VERBS.check(made, asked)
  local errors, tags, seen = policy.vet(), json.array {}, {}
  local function add_tag(tag, class)
    if seen[tag] then return end
    seen[tag] = true
    policy.merge(errors, class.errors)
    if class.made then tags[#tags + 1] = { tag = tag, leaves = count_leaves(class.made.tree) } end
  end
  policy.each_tag(add_tag)
  for _, tag in ipairs(asked.tags) do add_tag(tag, policy.class(where_of(asked, tag))) end
  local strategies, warnings = declared()
  write {
    verb = "check", policy = file.name, ok = #errors == 0, name = made.name, tags = tags,
    strategies = strategies, tests = #made.tests, always = #made.invariants,
    errors = objects(errors), warnings = warnings, hash = core.hash(),
  }
  return true
end

-- ---- test

local function chain_text(chain) return table.concat(strategy.names(chain), " or else ") end

local function run_tests(made)
  local results, errors, covered = json.array {}, {}, {}
  for i, test in ipairs(made.tests) do
    local chain, class = policy.try(test)
    if not chain then policy.merge(errors, class.errors) end
    if chain then covered[reached(class.made.tree, test.point)] = true end
    results[i] = {
      n = i, what = tests.words(test), line = tests.line(test), expect = chain_text(test.expect),
      ok = chain ~= nil and tests.passes(test, chain), got = chain and chain_text(chain) or nil,
    }
  end
  return results, errors, covered
end

-- Whether each invariant holds for all that was compiled.
local function decide_always(made, classes)
  local results = json.array {}
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
  end
  return results
end

local function cover(made, classes, covered)
  local total, hit, missed = 0, 0, json.array {}
  for _, class in ipairs(classes) do
    if class.made then
      each_leaf(class.made.tree, function(leaf)
        total = total + 1
        if covered[leaf] then
          hit = hit + 1
        else
          local row = row_of(made, { tag = class.tag }, leaf, total)
          missed[#missed + 1] = { line = row.line, tag = class.tag, conditions = row.conditions }
        end
      end)
    end
  end
  return { leaves = total, covered = hit, missed = missed }
end

-- The distinct classes of the tags that a load compiles for, each with its first tag.
local function known_classes(errors)
  local found, seen = {}, {}
  policy.each_tag(function(tag, class)
    if seen[class] then return end
    seen[class] = true
    class.tag = tag
    found[#found + 1] = class
    if not class.made then policy.merge(errors, class.errors) end
  end)
  return found
end

local function all_ok(results)
  for _, result in ipairs(results) do
    if not result.ok then return false end
  end
  return true
end

function VERBS.test(made)
  budget.step("running the tests")
  local results, errors, covered = run_tests(made)
  local classes = known_classes(errors)
  local invariants = decide_always(made, classes)
  write {
    verb = "test", policy = file.name, tests = results, always = invariants,
    ok = all_ok(results) and all_ok(invariants) and #errors == 0,
    coverage = cover(made, classes, covered), errors = objects(errors),
  }
  return true
end

-- ---- the door

---@return true|nil, string|nil words
function inspect.answer(file_name, text, query)
  file = { name = file_name, text = text, lines = diag.lines(text) }
  local asked, message = parse(query)
  if not asked then return nil, message end
  local verb = VERBS[asked.verb]
  if not verb then return nil, "a query has no verb '" .. tostring(asked.verb) .. "'" end
  local made, errors = policy.open(file_name, text, true)
  if made then return verb(made, asked) end
  refused(asked.verb, errors)
  return true
end

return inspect
