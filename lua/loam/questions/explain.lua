-- explain.lua - answers the query `explain`: which strategy a request gets, and which conditions of
-- the policy led to it.

local answer = require("loam.questions.answer")
local budget = require("loam.compiler.budget")
local compile = require("loam.compiler.compile")
local diag = require("loam.report.diag")
local file_lines = require("loam.questions.file_lines")
local leaves = require("loam.questions.leaves")
local policy = require("loam.compiler.policy")
local query = require("loam.questions.query")
local request = require("loam.symbolic.request")
local strategy = require("loam.language.strategy")

local explain = {}

-- The greatest number of answers that leaves keep in the field `told`. More answers would fill the
-- memory of a long batch.
local MOST_KEPT = 256
-- The number of answers that leaves keep. A Lua state has one policy and answers one query
-- (lm_script_inspect in core/script/script.c), so each of these leaves belongs to this policy.
local kept = 0

-- Stands for all tags in the field `told` of a leaf.
local ANY = {}

-- Returns ANY, or the tag if the story quotes a string of the site: which key of a table a tag is.
-- Only the tag differs between the requests of a query.
local function tag_of(story, where)
  for _, step in ipairs(story) do
    if step.quotes_site then return where.tag end
  end
  return ANY
end

-- Returns the answer for the leaf of the plan that a request reaches: the conditions on the way to
-- the leaf, and the chain of strategies there. The leaf keeps the answer by tag, or for all tags,
-- so a long batch computes it once. On failure returns nil and diagnostics.
local function story_of(made, class, where, point)
  local leaf = leaves.reached(class.made.tree, point)
  leaf.told = leaf.told or {}
  local before = leaf.told[ANY] or leaf.told[where.tag]
  if before then return before end
  local story, chain, line = compile.tell(made, where, point)
  if not story then return nil, { chain } end
  local told = {
    chain = chain, names = answer.list(strategy.names(chain)), line = line,
    path = answer.steps(story), strategy = strategy.report(strategy.members(chain)[1]),
  }
  if kept < MOST_KEPT then
    leaf.told[tag_of(story, where)], kept = told, kept + 1
  end
  return told
end

-- Returns the whole answer for the request `point` of the site `where`, or nil and diagnostics.
-- Checks also that the compiled plan decides as the policy does; if not, that is a fault of loam.
local function explained(made, where, point)
  local class = policy.class(where)
  if class.errors then return nil, class.errors end
  budget.step("explaining tag '" .. where.tag .. "', size " .. string.format("%d", point.size))
  local told, errors = story_of(made, class, where, point)
  if not told then return nil, errors end
  if not compile.agrees(class, point, told.chain) then
    return nil, { diag.new { line = told.line, class = "internal", reason = "the plan gives "
      .. "another strategy for " .. request.words(point) } }
  end
  return {
    verb = "explain", ok = true, tag = where.tag, size = point.size, strategy = told.strategy,
    chain = told.names, line = told.line, path = told.path, generation = 1,
  }
end

-- Answers one line of a batch, `tag<TAB>size[<TAB>align[<TAB>zero]]`. The other inputs, such as the
-- node, are those of `asked`. Returns the answer, or nil and a message if the line is not valid.
local function batch_line(made, asked, text)
  local fields = {}
  for field in string.gmatch(text .. "\t", "([^\t]*)\t") do fields[#fields + 1] = field end
  if #fields < 2 or #fields > 4 then
    return nil, "a line is tag<TAB>size[<TAB>align[<TAB>zero]], not '" .. text .. "'"
  end
  local one = {
    tags = {}, zero = false, node = asked.node, live = asked.live, device = asked.device,
    file = asked.file, func = asked.func, module = asked.module, line = asked.line,
    pressure = asked.pressure, nodefree = asked.nodefree, devicefree = asked.devicefree,
  }
  for i, key in ipairs { "tag", "size", "align", "zero" } do
    if fields[i] and (i < 3 or fields[i] ~= "") then
      local ok, message = query.add(one, key, fields[i])
      if not ok then return nil, message end
    end
  end
  local found, errors = explained(made, query.where(one), query.point(one, one.size))
  if found then return found end
  return { verb = "explain", ok = false, tag = one.tag, size = one.size,
           errors = answer.objects(errors) }
end

local function explain_batch(made, asked)
  local n = 0
  return file_lines.each(asked.batch, function(text)
    n = n + 1
    local found, message = batch_line(made, asked, text)
    if found then
      answer.write(found)
    else
      answer.write { verb = "explain", ok = false, errors = answer.objects { diag.new {
        file = asked.batch, line = n, class = "batch", reason = message } } }
    end
  end)
end

function explain.run(made, asked)
  if asked.batch then return explain_batch(made, asked) end
  if not asked.size then return nil, "explain needs a size" end
  local found, errors = explained(made, query.where(asked), query.point(asked, asked.size))
  if found then answer.write(found) else answer.refused("explain", errors) end
  return true
end

return explain
