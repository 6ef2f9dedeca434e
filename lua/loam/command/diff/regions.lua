-- regions.lua - compares two policies: every request for which they differ, in regions.
--
-- A region is a range of sizes, other conditions, and the sites of some classes, for which both
-- policies have one chain of strategies each. The sites of all its classes have the same sizes and
-- conditions. Its witness is a request with the shortest tag in the region and, for that tag, the
-- smallest size.

local boxes = require("loam.command.diff.boxes")
local dimensions = require("loam.command.diff.dimensions")
local plans = require("loam.command.diff.plans")
local questions = require("loam.command.diff.questions")
local reader = require("loam.command.diff.reader")
local site_search = require("loam.compiler.site_search")
local sites = require("loam.command.diff.sites")
local strategies = require("loam.command.diff.strategies")
local witness = require("loam.command.diff.witness")

local regions = {}

---@class loam.Region
---@field kind string of the difference: see strategies.difference
---@field rank number
---@field old loam.DiffMember[]
---@field new loam.DiffMember[]
---@field options table[]
---@field from number the smallest size
---@field to number the greatest size
---@field conditions string[] conditions that are true for all its requests
---@field questions string[] what is true of its sites (questions.lua)
---@field yes table[] { question, answer } of the site of the witness, without those answered no
---@field classes table[] the classes: the site, and the path of questions and answers
---@field no table[] the questions that the sites of some class answer with no
---@field tags "named"|"other"|"any" which tags the site of the witness stands for
---@field sites table[] a site of each class, with the shortest strings
---@field point table|nil the witness, by dimension; nil: undecided
---@field box table

---@class loam.Comparison
---@field regions loam.Region[] newly denied requests first
---@field undecided loam.Region[] no request is known for them, and none is excluded
---@field left_over integer parts that were too many to compare
---@field strategies table[] what became of strategies that are not alike (strategies.pair)
---@field pairs integer pairs of plans that were compared
---@field apply string[]|nil `apply` of the old and of the new policy, if they differ
---@field dims loam.Dimensions
---@field old loam.DiffPolicy
---@field new loam.DiffPolicy
---@field plans table of plans.new

-- ---- classes

local FIELDS = { "tag", "file", "func", "module" }

local function is_before(a, b)
  for _, field in ipairs(FIELDS) do
    if #a[field] ~= #b[field] then return #a[field] < #b[field] end
    if a[field] ~= b[field] then return a[field] < b[field] end
  end
  return false
end

-- Says which tags a site stands for: "named" (a question about the tag has the answer yes), "other"
-- (the questions about the tag have the answer no), "any" (no question is about the tag).
local function tags_of(path)
  local kind = "any"
  for _, step in ipairs(path) do
    if step[1].field == "tag" then
      if step[2] then return "named" end
      kind = "other"
    end
  end
  return kind
end

-- ---- making regions

local function size_of(dims) return dims.by_key["i0:0"] end

local function conditions_of(box)
  local list = {}
  for _, dim in ipairs(boxes.used { box }) do
    if dim.field ~= "size" then
      list[#list + 1] = dimensions.words(dim, box[dim][1], box[dim][2])
    end
  end
  return list
end

-- Returns a chain with the names that one policy gives to its strategies. A leaf that both policies
-- have holds the members of the policy that was read first. The other policy may give them other
-- names.
local function chain_in(made, leaf)
  local chain = {}
  for i, member in ipairs(leaf.leaf) do chain[i] = made.by_same[member.same] end
  return chain
end

-- Makes the region of a difference of two plans.
local function new_region(made, found)
  local size = size_of(made.dims)
  local range = found.box[size]
  local old, new = chain_in(made.old, found.old), chain_in(made.new, found.new)
  local kind, rank, options = strategies.difference(old, new)
  return {
    kind = kind, rank = rank, options = options, old = old, new = new,
    from = range and range[1] or size.least, to = range and range[2] or size.most,
    conditions = conditions_of(found.box), sites = {}, classes = {}, no = {}, is_no = {},
    point = found.point, box = found.box,
  }
end

-- Adds a class to a region. The site of the first class in the order of sites is the witness.
local function add_class(region, class)
  table.insert(region.classes, class)
  for _, question in ipairs(class.no) do
    if not region.is_no[question] then table.insert(region.no, question) end
    region.is_no[question] = true
  end
  if not region.sites[1] or is_before(class.site, region.sites[1]) then
    region.yes, region.tags = class.yes, class.tags
    table.insert(region.sites, 1, class.site)
  else
    table.insert(region.sites, class.site)
  end
end

-- Adds the differences of two plans to the regions. The regions of other classes with equal chains
-- and an equal box are the same region.
local function add(made, by_key, found, class)
  local key = ("%d:%d:%s:%s"):format(found.old.id, found.new.id, tostring(found.point ~= nil),
    boxes.key(found.box, boxes.used { found.box }))
  local region = by_key[key]
  if not region then
    region = new_region(made, found)
    by_key[key] = region
    local list = found.point and made.regions or made.undecided
    list[#list + 1] = region
  end
  found.region = region
  add_class(region, class)
end

local function is_region_before(a, b)
  if a.rank ~= b.rank then return a.rank < b.rank end
  local site, other = a.sites[1], b.sites[1]
  if is_before(site, other) then return true end
  if is_before(other, site) then return false end
  if a.from ~= b.from then return a.from < b.from end
  return table.concat(a.conditions, " ") < table.concat(b.conditions, " ")
end

-- States of the searches for short names of sites: of one search, and of a comparison. A state
-- takes up to 0.3 ms.
local MOST_STATES, MOST_IN_ALL = 5000, 20000

local function compare_sites(made, old, new, tick)
  local by_key, plan_set, left = {}, made.plans, MOST_IN_ALL
  local function named(path, site)
    if left <= 0 then return site end
    local where, states = site_search.shortest(path, site, math.min(left, MOST_STATES))
    left = left - states
    return where
  end
  made.is_partial = sites.each_pair(old.root, new.root, function(a, b, path, site)
    local found = plans.compare(plan_set, a, b)
    made.left_over = made.left_over + found.left_over
    if #found == 0 then return end
    local where = named(path, site)
    local class = { site = where, tags = tags_of(path), path = { unpack(path) } }
    class.yes, class.no, class.is_no = questions.split(path)
    for _, one in ipairs(found) do add(made, by_key, one, class) end
  end, tick)
end

-- Compares two policies, given as their answers to the query `nodes`.
---@param tick fun()|nil called now and then, as the comparison may take long
---@return loam.Comparison
function regions.compare(old_text, new_text, tick)
  local pool = reader.pool()
  local old, new = reader.begin(pool, old_text), reader.begin(pool, new_text)
  local made = {
    regions = {}, undecided = {}, left_over = 0, dims = pool.dims,
    strategies = strategies.pair(old.members, new.members),
    apply = old.apply ~= new.apply and { old.apply, new.apply } or nil,
    old = old, new = new, plans = plans.new(pool.dims),
  }
  for _, policy in ipairs { old, new } do
    policy.by_same = {}
    for _, member in ipairs(policy.members) do policy.by_same[member.same] = member end
    reader.finish(policy)
  end
  witness.reset()
  compare_sites(made, old, new, tick or function() end)
  local words = questions.new()
  for _, list in ipairs { made.regions, made.undecided } do
    table.sort(list, is_region_before)
    for _, region in ipairs(list) do
      table.sort(region.sites, is_before)
      region.questions = questions.words(words, region, made.is_partial)
    end
  end
  return made
end

return regions
