-- impact.lua - how many blocks of running programs a comparison of two policies is about.
--
-- A program tells how many blocks of each tag and size class live, and how many it has allocated so
-- far. A class may lie wholly in a region, or partly, or the region may have further conditions,
-- such as a NUMA node. So each figure is a lower and an upper bound. They are equal if the class
-- lies wholly in the region, or wholly outside.
--
-- Not counted: requests that were denied, and requests that realloc served in place.

local plans = require("loam.command.diff.plans")
local stats_groups = require("loam.command.stats_groups")

local impact = {}

local FIGURES = { "total_blocks", "total_bytes", "live_blocks", "live_bytes" }
impact.FIGURES = FIGURES

---@class loam.Bounds by figure: { least, most }

---@class loam.Impact
---@field all table<string, number> the figures of all blocks
---@field differ loam.Bounds blocks in any region
---@field kinds table<string, loam.Bounds> by kind of difference
---@field regions table<loam.Region, loam.RegionImpact>
---@field programs table[] the programs that were counted
---@field unread table[] { pid, reason } programs that could not be read

---@class loam.RegionImpact { bounds: loam.Bounds, rows: table[] { tag, from, to, bounds } }
--- impact.rows gives the rows in order

-- ---- bounds

local function new_bounds()
  local bounds = {}
  for _, name in ipairs(FIGURES) do bounds[name] = { least = 0, most = 0 } end
  return bounds
end

-- Adds the figures of a class to the upper bounds and, if it is certain, to the lower bounds.
local function add(bounds, class, is_certain)
  for _, name in ipairs(FIGURES) do
    local bound = bounds[name]
    bound.most = bound.most + class[name]
    if is_certain then bound.least = bound.least + class[name] end
  end
end

-- ---- the plans of a tag

-- Calls `visit(a, b)` for each pair of plans that requests with a tag may get. A program does not
-- tell the file, function and module of a block, so every answer about them is possible.
local function each_pair(old, new, tag, visit)
  local where, answers = { tag = tag }, {}
  local function next_of(cell, question, answer)
    if cell.question ~= question then return cell end
    return cell.answers[answer]
  end
  local function walk(a, b)
    local cell = a.question and a or b.question and b
    if a == b or not cell then return visit(a, b) end
    local question = cell.question
    local function follow(answer)
      local x, y = next_of(a, question, answer), next_of(b, question, answer)
      if x and y then walk(x, y) end
    end
    if question.field == "tag" then return follow(question.ask(where)) end
    if answers[question] ~= nil then return follow(answers[question]) end
    for answer in pairs(cell.answers) do
      answers[question] = answer
      follow(answer)
    end
    answers[question] = nil
  end
  walk(old, new)
end

-- Lists the pairs of different plans for a tag, and whether requests may also get equal plans.
-- Equal lists are one table. A pair that the comparison has not met is one that no site gets.
local function pairs_of(made, known, tag)
  local list, seen, has_equal = {}, {}, false
  each_pair(made.old.root, made.new.root, tag, function(a, b)
    local key = a.id .. ":" .. b.id
    if a == b then has_equal = true end
    if a == b or seen[key] or not made.plans.done[key] then return end
    seen[key] = true
    list[#list + 1] = { key = key, a = a, b = b, found = made.plans.done[key] }
  end)
  table.sort(list, function(x, y) return x.key < y.key end)
  local words = { tostring(has_equal) }
  for i, pair in ipairs(list) do words[i + 1] = pair.key end
  local key = table.concat(words, " ")
  known[key] = known[key] or { list = list, has_equal = has_equal, ranges = {} }
  return known[key]
end

-- ---- a range of sizes

-- Returns whether a box holds requests with these sizes, and whether it holds all of them.
local function overlap(box, size, from, to)
  local range = box[size]
  local lo, hi = range and range[1] or size.least, range and range[2] or size.most
  if lo > to or hi < from then return false, false end
  local first, second = next(box), nil
  if first then second = next(box, first) end
  local has_others = (first ~= nil and first ~= size) or second ~= nil
  return true, not has_others and lo <= from and hi >= to
end

-- Finds the regions in which requests of the sizes may be under some of the plans. Returns a table
-- from region to the number of plans under which all of them are in it, and whether there may be
-- others, for which it is not known whether they differ.
local function regions_of(plans_of, size, from, to)
  local in_region, is_doubtful = {}, false
  for _, pair in ipairs(plans_of.list) do
    if pair.found.left_over > 0 then is_doubtful = true end
    for _, found in ipairs(pair.found) do
      local is_some, is_all = overlap(found.box, size, from, to)
      if is_some then
        local is_certain = is_all and found.point ~= nil
        in_region[found.region] = (in_region[found.region] or 0) + (is_certain and 1 or 0)
      end
    end
  end
  return in_region, is_doubtful
end

-- Returns whether each request of the sizes differs.
local function all_differ(plans_of, size, from, to)
  if plans_of.has_equal or #plans_of.list == 0 then return false end
  for _, pair in ipairs(plans_of.list) do
    if pair.found.left_over > 0 or plans.may_agree(pair.a, pair.b, size, from, to) then
      return false
    end
  end
  return true
end

-- Returns what becomes of requests of some sizes under the plans of a tag.
local function outcome_of(plans_of, size, from, to)
  local key = from .. " " .. to
  local known = plans_of.ranges[key]
  if known then return known end
  local in_region, is_doubtful = regions_of(plans_of, size, from, to)
  known = { regions = {}, is_some = is_doubtful or next(in_region) ~= nil }
  for region, times in pairs(in_region) do
    known.regions[#known.regions + 1] = {
      region, not plans_of.has_equal and times == #plans_of.list }
  end
  known.is_all = known.is_some and all_differ(plans_of, size, from, to)
  plans_of.ranges[key] = known
  return known
end

-- ---- programs

-- Strategies of these kinds serve a request by the least class that holds it. Others may round it
-- up, so a request may be smaller than its class.
local IS_EVEN = { host = true, shared = true, file = true }

local function add_to_region(counted, region, row, class, is_certain)
  local of = counted.regions[region]
  if not of then
    of = { bounds = new_bounds(), rows = {}, by_key = {} }
    counted.regions[region] = of
  end
  add(of.bounds, class, is_certain)
  local key = row.tag .. "\0" .. class.to
  local one = of.by_key[key]
  if not one then
    one = { tag = row.tag, from = class.from, to = class.to, bounds = new_bounds() }
    of.by_key[key] = one
    of.rows[#of.rows + 1] = one
  end
  add(one.bounds, class, is_certain)
end

-- Returns the kind of a region, as the report shows it.
local function kind_of(region) return region.point and region.kind or "undecided" end

local function add_class(made, counted, plans_of, row, class)
  local size = made.dims.by_key["i0:0"]
  local from = IS_EVEN[row.kind] and class.from or 0
  local outcome = outcome_of(plans_of, size, from, class.to)
  if not outcome.is_some then return end
  add(counted.differ, class, outcome.is_all)
  local kinds = {}
  for _, entry in ipairs(outcome.regions) do
    local region, is_certain = entry[1], entry[2]
    add_to_region(counted, region, row, class, is_certain)
    local kind = kind_of(region)
    kinds[kind] = kinds[kind] or is_certain
  end
  for kind, is_certain in pairs(kinds) do
    counted.kinds[kind] = counted.kinds[kind] or new_bounds()
    add(counted.kinds[kind], class, is_certain)
  end
end

local function add_row(made, counted, known, row)
  local plans_of = pairs_of(made, known, row.tag)
  for _, class in ipairs(stats_groups.classes(row)) do
    for _, name in ipairs(FIGURES) do counted.all[name] = counted.all[name] + class[name] end
    add_class(made, counted, plans_of, row, class)
  end
end

local function has_more_blocks(a, b)
  local x, y = a.bounds.total_blocks.most, b.bounds.total_blocks.most
  if x ~= y then return x > y end
  if a.tag ~= b.tag then return a.tag < b.tag end
  return a.to < b.to
end

-- Returns the rows of a region, those with most blocks first. They are sorted when they are first
-- asked for, because a report shows a part of the regions.
---@param of loam.RegionImpact
---@return table[]
function impact.rows(of)
  if not of.is_sorted then table.sort(of.rows, has_more_blocks) end
  of.is_sorted = true
  return of.rows
end

-- Counts the blocks of programs in the regions of a comparison.
---@param made loam.Comparison
---@param answers table[] to `stats`, one for each program
---@return loam.Impact
function impact.of(made, answers)
  local counted, known = { all = {}, differ = new_bounds(), kinds = {}, regions = {} }, {}
  for _, name in ipairs(FIGURES) do counted.all[name] = 0 end
  for _, answer in ipairs(answers) do
    for _, row in ipairs(answer.rows) do add_row(made, counted, known, row) end
  end
  return counted
end

return impact
