-- compare.lua - pairs of random policies: `loam diff` against plain Lua.
--
--   luajit tests/lua/compare.lua --seed 1 --count 2000 --requests 500
--
-- A pair is a random policy and another one, or a policy and its text with one number or one
-- strategy changed. Plain Lua, without loam's compiler, decides random requests and requests at the
-- corners of regions under both policies. Where the two answers differ, the comparison must have a
-- region with those strategies, or say that it is undecided; where they agree, it must have none.

jit.off() -- as in a policy's state

local here = debug.getinfo(1, "S").source:match("^@(.*)tests/lua/[^/]*$") or "./"
package.path = here .. "lua/?.lua;" .. here .. "tests/lua/?.lua;" .. package.path
package.loaded["loam.core"] = package.loaded["loam.core"] or require("core_stub")

local condition = require("loam.symbolic.condition")
local confirm = require("loam.command.diff.confirm")
local core = require("loam.core")
local driver = require("loam.driver")
local generate = require("generate")
local regions = require("loam.command.diff.regions")

local compare = {}

-- Returns the answer of a policy to a query.
function compare.ask(text, query)
  core.written = {}
  local ok, message = driver.inspect("generated.lua", text, query)
  assert(ok, message)
  return table.concat(core.written)
end

-- ---- the region of a request

local function plan_of(cell, where)
  while cell.question do cell = cell.answers[cell.question.ask(where)] end
  return cell
end

-- Returns the value of a dimension at a point; 0 or 1 for a computed condition.
local function value_of(dim, point)
  local kind, n = (dim.field or ""):match("^(%l+_free):(%d+)$")
  if kind then return point[kind][tonumber(n)] or 0 end
  if dim.field == "zero" then return point.zero and 1 or 0 end
  if dim.field then return point[dim.field] end
  local function read(input) return value_of(input.dim, point) end
  if dim.kind == "real" then return condition.evaluate(dim.expression, read) end
  local c = dim.condition
  return condition.holds({ complex = true, cmp = c.cmp, left = c.left, right = c.right }, read)
    and 1 or 0
end

local function is_inside(box, point)
  for dim, range in pairs(box) do
    local value = value_of(dim, point)
    if value < range[1] or value > range[2] then return false end
  end
  return true
end

local function names_of(chain)
  local names = {}
  for i, member in ipairs(chain) do names[i] = member.name end
  return table.concat(names, ",")
end

-- Returns the names of both chains that a comparison gives for a request; nil if it says that the
-- request is alike; "undecided" if it does not know.
function compare.at(made, where, point)
  local a, b = plan_of(made.old.root, where), plan_of(made.new.root, where)
  if a == b then return nil end
  local list = made.plans.done[a.id .. ":" .. b.id]
  if not list then return "a pair of plans was not compared" end
  local found
  for _, one in ipairs(list) do
    if is_inside(one.box, point) then
      if found then return "two regions have one request" end
      found = one
    end
  end
  if not found then return list.left_over > 0 and "undecided" or nil end
  if not found.point then return "undecided" end
  return names_of(found.old.leaf) .. " -> " .. names_of(found.new.leaf)
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

local function check_request(made, picks, where, point)
  local old = generate.decide(picks[1], where, point)
  local new = generate.decide(picks[2], where, point)
  local wanted = old ~= new and old .. " -> " .. new or nil
  local got = compare.at(made, where, point)
  if got == wanted or got == "undecided" then return nil, got == "undecided" end
  return ("tag %q, size %d: plain Lua has %s, the comparison %s"):format(where.tag, point.size,
    tostring(wanted), tostring(got))
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

-- Checks the requests at both ends of a region's sizes and beside them, for some of its sites.
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

local MOST_REGIONS = 20 -- of a pair, whose corners become requests

local function check_all(made, texts, requests)
  local picks = { generate.plain(texts[1]), generate.plain(texts[2]) }
  local next_request, doubts = generate.requests(texts[1] .. texts[2]), 0
  local message = check_confirmed(made, texts)
  for _ = 1, math.min(#made.regions, MOST_REGIONS) do
    local region = made.regions[generate.below(#made.regions) + 1]
    message = message or check_region(made, picks, region)
  end
  for _ = 1, requests do
    if message then break end
    local where, point = next_request()
    local is_doubt
    message, is_doubt = check_request(made, picks, where, point)
    if is_doubt then doubts = doubts + 1 end
  end
  if message then return nil, message end
  return { requests = requests, regions = #made.regions, undecided = #made.undecided,
           doubts = doubts }
end

-- Compares a pair, and checks the comparison at `requests` random requests. Returns the
-- counts; or nil and a message. A policy that is refused, for its size, gives zeros.
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
  local seed, count, requests = option("seed", 1), option("count", 1000), option("requests", 200)
  local sum = { requests = 0, regions = 0, undecided = 0, doubts = 0 }
  for i = seed, seed + count - 1 do
    local old, new = compare.pair(i)
    local found, message = compare.run(old, new, requests)
    if not found then
      io.write(old, new, ("seed %d: %s\n"):format(i, message))
      return 1
    end
    for key, value in pairs(found) do sum[key] = sum[key] + value end
  end
  io.write(("%d pairs, %d regions, %d requests: none missed, none invented; %d regions and %d "
    .. "requests undecided\n"):format(count, sum.regions, sum.requests, sum.undecided, sum.doubts))
  return 0
end

if arg and arg[0] and arg[0]:find("compare%.lua$") then os.exit(main()) end

return compare
