-- impact_report.lua - shows how many blocks of programs a comparison is about.

local describe = require("loam.command.describe")
local escape = require("loam.command.diff.escape")
local impact = require("loam.command.diff.impact")
local json = require("loam.report.json")
local programs = require("loam.command.diff.programs")
local units = require("loam.command.units")

local impact_report = {}

local MOST_ROWS = 5       -- of a region, as text
local MOST_ROWS_JSON = 100 -- of a region, in JSON

-- ---- words

local function range_words(bound, words)
  if bound.least == bound.most then return words(bound.most) end
  return ("%s to %s"):format(words(bound.least), words(bound.most))
end

local function blocks_words(bounds, age)
  return ("%s (%s)"):format(range_words(bounds[age .. "_blocks"], units.count),
    range_words(bounds[age .. "_bytes"], units.bytes))
end

-- Lists the sentences about all regions, the number of all blocks first.
---@param counted loam.Impact
---@return string[]
function impact_report.sentences(counted)
  local all, list = counted.all, {}
  local denied = counted.kinds.denied
  local function denied_words(age)
    if not denied then return "" end
    return ("%s would be denied, in all "):format(blocks_words(denied, age))
  end
  list[1] = ("of %s (%s) that %s allocated so far,\n  %s%s would be decided otherwise"):format(
    units.plural(all.total_blocks, "block"), units.bytes(all.total_bytes),
    programs.words(counted.programs), denied_words("total"),
    blocks_words(counted.differ, "total"))
  list[2] = ("of %s (%s),\n  %s%s would be decided otherwise"):format(
    units.plural(all.live_blocks, "live block"), units.bytes(all.live_bytes),
    denied_words("live"), blocks_words(counted.differ, "live"))
  for _, one in ipairs(counted.unread) do
    list[#list + 1] = ("not counted: %s"):format(escape.text(one.reason))
  end
  return list
end

local function class_words(row)
  if row.from == 0 and row.to == 2 ^ 47 then return "any size" end
  return "up to " .. units.exact(row.to)
end

-- Lists the lines about a region. A region without blocks has one.
---@return string[]
function impact_report.lines(counted, region)
  local of = counted.regions[region]
  if not of then return { "no block of this program" .. (#counted.programs > 1 and "s" or "") } end
  local list = { ("%s so far, %s live"):format(blocks_words(of.bounds, "total"),
    blocks_words(of.bounds, "live")) }
  local rows = impact.rows(of)
  for i = 1, math.min(#rows, MOST_ROWS) do
    local row = rows[i]
    list[#list + 1] = ("  %s %s: %s so far, %s live"):format(escape.text(describe.tag(row.tag)),
      class_words(row), blocks_words(row.bounds, "total"), blocks_words(row.bounds, "live"))
  end
  if #rows > MOST_ROWS then
    list[#list + 1] = ("  and %s"):format(units.plural(#rows - MOST_ROWS, "other size class",
      "other size classes"))
  end
  return list
end

-- Returns the blocks of a region as the cells of a table: so far, and live.
function impact_report.cells(counted, region)
  local of = counted.regions[region]
  if not of then return "0", "0" end
  return blocks_words(of.bounds, "total"), blocks_words(of.bounds, "live")
end

-- ---- JSON

local function bounds_json(bounds)
  local object = {}
  for _, name in ipairs(impact.FIGURES) do
    object[name] = { least = bounds[name].least, most = bounds[name].most }
  end
  return object
end

-- Returns the member `impact` of a region.
function impact_report.region_json(counted, region)
  local of, rows = counted.regions[region], json.array {}
  if not of then
    local none = {}
    for _, name in ipairs(impact.FIGURES) do none[name] = { least = 0, most = 0 } end
    return { blocks = none, rows = rows, rows_left_out = 0 }
  end
  local sorted = impact.rows(of)
  for i = 1, math.min(#sorted, MOST_ROWS_JSON) do
    local row = sorted[i]
    rows[i] = { tag = row.tag, from = row.from, to = row.to, blocks = bounds_json(row.bounds) }
  end
  return { blocks = bounds_json(of.bounds), rows = rows, rows_left_out = #sorted - #rows }
end

-- Returns the member `impact` of the answer.
function impact_report.json(counted)
  local list, unread, kinds = json.array {}, json.array {}, {}
  for i, program in ipairs(counted.programs) do list[i] = program.pid end
  for i, one in ipairs(counted.unread) do unread[i] = { pid = one.pid, error = one.reason } end
  for kind, bounds in pairs(counted.kinds) do kinds[kind] = bounds_json(bounds) end
  local object = { pids = list, unread = unread, differ = bounds_json(counted.differ),
                   kinds = kinds }
  for _, name in ipairs(impact.FIGURES) do object[name] = counted.all[name] end
  return object
end

return impact_report
