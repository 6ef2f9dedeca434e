-- compare.lua - compares `loam diff` with plain Lua for pairs of random policies.
--
--   luajit tests/lua/compare.lua --from 1 --count 2500 --requests 4000 --jobs 2
--
-- A pair is a random policy and another one, or a policy and its text with one number or one
-- strategy changed. Plain Lua, without loam's compiler, decides random requests, and requests at
-- the corners of regions, under both policies. Where the two answers differ, the comparison must
-- have a region with those strategies, or say that it is undecided; where they agree, it must have
-- none. The requests are also counted by tag and size class, as a program counts its blocks: the
-- number of requests that differ must lie between the bounds of `loam diff --pid`.

jit.off() -- as in the Lua state of a policy

local here = debug.getinfo(1, "S").source:match("^@(.*)tests/lua/[^/]*$") or "./"
package.path = here .. "lua/?.lua;" .. here .. "tests/lua/?.lua;" .. package.path
package.loaded["loam.core"] = package.loaded["loam.core"] or require("core_stub")

local box_index = require("box_index")
local condition = require("loam.symbolic.condition")
local confirm = require("loam.command.diff.confirm")
local core = require("loam.core")
local driver = require("loam.driver")
local generate = require("generate")
local impact = require("loam.command.diff.impact")
local regions = require("loam.command.diff.regions")

local compare = {}

-- Returns the answer of a policy to a query.
function compare.ask(text, query)
  core.written = {}
  local ok, message = driver.inspect("generated.lua", text, query)
  assert(ok, message)
  return table.concat(core.written)
end

-- ---- The region of a request

local function plan_of(cell, where)
  while cell.question do cell = cell.answers[cell.question.ask(where)] end
  return cell
end

local gauges = setmetatable({}, { __mode = "k" }) -- dimension -> the result of gauge_of

-- Returns { kind, number } for a dimension that is a gauge of free memory: the table of a point,
-- and the key in it. Returns false for any other dimension.
local function gauge_of(dim)
  local of = gauges[dim]
  if of == nil then
    local kind, n = (dim.field or ""):match("^(%l+_free):(%d+)$")
    of = kind and { kind = kind, number = tonumber(n) } or false
    gauges[dim] = of
  end
  return of
end

-- Returns the value of a dimension at a point. For a computed condition it is 0 or 1.
local function value_of(dim, point)
  local of = gauge_of(dim)
  if of then return point[of.kind][of.number] or 0 end
  if dim.field == "zero" then return point.zero and 1 or 0 end
  if dim.field then return point[dim.field] end
  local function read(input) return value_of(input.dim, point) end
  if dim.expression then return condition.evaluate(dim.expression, read) end
  local c = dim.condition
  return condition.holds({ complex = true, cmp = c.cmp, left = c.left, right = c.right }, read)
    and 1 or 0
end

-- Returns a function that returns the value of a dimension at a point, and computes each value
-- once.
local function values_at(point)
  local values = {}
  return function(dim)
    local value = values[dim]
    if value == nil then
      value = value_of(dim, point)
      values[dim] = value
    end
    return value
  end
end

local function names_of(chain)
  local names = {}
  for i, member in ipairs(chain) do names[i] = member.name end
  return table.concat(names, ",")
end

-- Returns the names of both chains that a comparison gives for a request, and the region. Returns
-- nil if the comparison says that the policies agree, and "undecided" if it does not know.
function compare.at(made, where, point)
  local a, b = plan_of(made.old.root, where), plan_of(made.new.root, where)
  if a == b then return nil end
  local list = made.plans.done[a.id .. ":" .. b.id]
  if not list then return "a pair of plans was not compared" end
  list.index = list.index or box_index.new(list, made.dims.list)
  local found, other = box_index.find(list.index, values_at(point))
  if other then return "two regions have one request" end
  if not found then return list.left_over > 0 and "undecided" or nil end
  if not found.point then return "undecided" end
  return names_of(found.old.leaf) .. " -> " .. names_of(found.new.leaf), found.region
end

-- ---- pairs

-- Changes one number or one strategy of a text, if it has one.
local function changed(text)
  local head, body = text:match("^(.-pick = function%(req%)\n)(.*)$")
  local pattern = generate.below(3) == 0 and "s[1-4]" or "%f[%w]%d+"
  local count = select(2, body:gsub(pattern, ""))
  if count == 0 then return text end
  local nth, n = generate.below(count) + 1, 0
  body = body:gsub(pattern, function(found)
    n = n + 1
    if n ~= nth then return nil end
    if pattern == "s[1-4]" then return "s" .. generate.below(4) + 1 end
    return tostring(math.max(1, tonumber(found) + generate.below(9) - 4))
  end)
  return head .. body
end

-- Returns the texts of a pair.
function compare.pair(seed)
  local other = generate.policy(seed + 1000003)
  local text = generate.policy(seed)
  if seed % 4 == 0 then return text, other end
  return text, changed(text)
end

-- ---- comparing

-- Checks one request. Returns a message if the comparison is wrong. Otherwise returns nil, whether
-- it is undecided, whether the policies differ, and the region.
local function check_request(made, picks, where, point)
  local old = generate.decide(picks[1], where, point)
  local new = generate.decide(picks[2], where, point)
  local wanted = old ~= new and old .. " -> " .. new or nil
  local got, region = compare.at(made, where, point)
  if got == wanted or got == "undecided" then
    return nil, got == "undecided", wanted ~= nil, region
  end
  return ("tag %q, size %d: plain Lua has %s, the comparison %s"):format(where.tag, point.size,
    tostring(wanted), tostring(got))
end

-- ---- counted blocks

-- Returns the class of a size: four classes for each doubling.
local function class_of(size)
  if size < 8 then return { from = size, to = size } end
  local mantissa, exponent = math.frexp(size)
  local step, quarter = 2 ^ (exponent - 3), math.floor((mantissa - 0.5) * 8)
  local from = 2 ^ (exponent - 1) + quarter * step
  return { from = from, to = from + step - 1 }
end

-- Counts a request as a block of its class. The bytes of the block depend only on its size.
local function add_block(answer, where, point)
  local row = answer.by_tag[where.tag]
  if not row then
    row = { tag = where.tag, kind = "host", classes = {}, by_from = {} }
    answer.by_tag[where.tag] = row
    table.insert(answer.rows, row)
  end
  local class = class_of(point.size)
  local known = row.by_from[class.from]
  if not known then
    known = class
    for _, name in ipairs(impact.FIGURES) do known[name] = 0 end
    row.by_from[class.from] = known
    table.insert(row.classes, known)
  end
  known.total_blocks, known.total_bytes = known.total_blocks + 1, known.total_bytes + 16
end

local function is_between(bounds, n)
  return bounds.total_blocks.least <= n and n <= bounds.total_blocks.most
    and bounds.total_bytes.least == 16 * bounds.total_blocks.least
    and bounds.total_bytes.most == 16 * bounds.total_blocks.most
end

local function bounds_words(n, bounds)
  return ("%d requests, but the bounds are %d to %d"):format(n, bounds.total_blocks.least,
    bounds.total_blocks.most)
end

-- Checks the bounds for all counted requests. `told` has the number of requests that differ, in all
-- and in each region.
local function check_impact(made, answer, told)
  local counted = impact.of(made, { answer })
  if not is_between(counted.differ, told.differ) then
    return "in any region: " .. bounds_words(told.differ, counted.differ)
  end
  for region, n in pairs(told.regions) do
    local of = counted.regions[region]
    if not of then return ("region %d: %d requests, but no bounds"):format(region.from, n) end
    if not is_between(of.bounds, n) then
      return ("region of tag %q: "):format(region.sites[1].tag) .. bounds_words(n, of.bounds)
    end
  end
  for region, of in pairs(counted.regions) do
    if not told.regions[region] and of.bounds.total_blocks.least > 0 then
      return ("region of tag %q: "):format(region.sites[1].tag) .. bounds_words(0, of.bounds)
    end
  end
  return nil
end

local FREE = { node_free = true, device_free = true }

-- Makes the point of a region's witness, with the size `size`.
local function point_of(made, region, size)
  local point = { node_free = {}, device_free = {} }
  for _, dim in ipairs(made.dims.list) do
    local kind, n = (dim.field or ""):match("^(%l+_free):(%d+)$")
    if FREE[kind] then
      point[kind][tonumber(n)] = region.point[dim]
    elseif dim.field then
      point[dim.field] = region.point[dim]
    end
  end
  point.zero = point.zero == 1
  point.size = size or point.size
  return point
end

-- Checks requests at both ends of a region's sizes and just beyond them, for some of its sites.
local function check_region(made, picks, region)
  for i = 1, math.min(#region.sites, 3) do
    local where = region.sites[i]
    for _, size in ipairs { -1, region.from - 1, region.from, region.to, region.to + 1 } do
      if size <= 2 ^ 47 and (size >= 0 or size == -1) then
        local point = point_of(made, region, size >= 0 and size or nil)
        local message = check_request(made, picks, where, point)
        if message then return message end
      end
    end
  end
  return nil
end

local function check_confirmed(made, texts)
  if #made.regions == 0 then return nil end
  local query = "verb confirm\nrequest " .. table.concat(confirm.requests(made), "\nrequest ")
  for i, side in ipairs { "old", "new" } do
    local region, reason = confirm.check(made, side, compare.ask(texts[i], query))
    if region then return side .. ": " .. reason end
  end
  return nil
end

---@class loam.Compared { requests, regions, undecided, doubts }
--- doubts: requests at which the comparison is undecided

local MOST_REGIONS = 20 -- regions of a pair whose corners become requests

local function check_all(made, texts, requests)
  local picks = { generate.plain(texts[1]), generate.plain(texts[2]) }
  local next_request, doubts = generate.requests(texts[1] .. texts[2]), 0
  local answer, told = { rows = {}, by_tag = {} }, { differ = 0, regions = {} }
  local message = check_confirmed(made, texts)
  for _ = 1, math.min(#made.regions, MOST_REGIONS) do
    local region = made.regions[generate.below(#made.regions) + 1]
    message = message or check_region(made, picks, region)
  end
  for _ = 1, requests do
    if message then break end
    local where, point = next_request()
    local is_doubt, differs, region
    message, is_doubt, differs, region = check_request(made, picks, where, point)
    if is_doubt then doubts = doubts + 1 end
    add_block(answer, where, point)
    if region then told.regions[region] = (told.regions[region] or 0) + 1 end
    if differs then told.differ = told.differ + 1 end
  end
  message = message or check_impact(made, answer, told)
  if message then return nil, message end
  return { requests = requests, regions = #made.regions, undecided = #made.undecided,
           doubts = doubts }
end

-- Compares a pair, and checks the comparison at `requests` random requests. Returns the counts, or
-- nil and a message. If a policy is refused for its size, all counts are zero.
---@return loam.Compared|nil, string|nil
function compare.run(old, new, requests)
  local answers = { compare.ask(old, "verb nodes"), compare.ask(new, "verb nodes") }
  if answers[1]:sub(1, 1) == "{" or answers[2]:sub(1, 1) == "{" then
    return { requests = 0, regions = 0, undecided = 0, doubts = 0 }
  end
  return check_all(regions.compare(answers[1], answers[2]), { old, new }, requests)
end

-- ---- the program

local function main()
  local option = generate.option
  local requests = option("requests", 200)
  local function check(seed, add)
    generate.forget()
    local old, new = compare.pair(seed)
    local found, message = compare.run(old, new, requests)
    if not found then return message .. "\n" .. old .. new end
    for key, value in pairs(found) do add(key, value) end
  end
  return require("workers").run {
    from = option("from", 1), count = option("count", 1000), jobs = option("jobs", 1), chunk = 5,
    counters = { "requests", "regions", "undecided", "doubts" }, check = check,
    line = function(sums)
      return ("%d pairs, %d regions, %d requests: %d missed or invented; %d regions and %d "
        .. "requests undecided"):format(sums.seeds, sums.regions, sums.requests, sums.faults,
        sums.undecided, sums.doubts)
    end,
  }
end

if arg and arg[0] and arg[0]:find("compare%.lua$") then os.exit(main()) end

return compare
