-- generate.lua - makes random policies, and compares their compiled plans with plain Lua.
--
--   luajit tests/lua/generate.lua --from 1 --count 1000000 --jobs 2
--
-- Each seed makes one policy. Its plans and its class tree are compared with plain Lua at `--sites`
-- random sites (10), with `--points` random requests each (10). The requests have numbers near
-- those in the text of the policy and near the thresholds of the plan.
--
-- The plain Lua here does not use the sandbox: the text runs in an environment of a dozen lines,
-- with a request of ordinary numbers and strings, so that a fault in loam's checks is found too. A
-- refused policy must be refused for its size (leaves, expression), never for another reason.

jit.off() -- as in the Lua state of a policy: compiled code has another result for math.max(x, 0/0)

local here = debug.getinfo(1, "S").source:match("^@(.*)tests/lua/[^/]*$") or "./"
package.path = here .. "lua/?.lua;" .. here .. "tests/lua/?.lua;" .. package.path
package.loaded["loam.core"] = package.loaded["loam.core"] or require("core_stub")

local core = require("loam.core")
local policy = require("loam.compiler.policy")
local tag = require("loam.symbolic.tag")

local generate = {}

local TAGS = { "", "a", "a.b", "a.b.c", "b", "numpy.data", "tensor.weights", "x.y.z.w", "7.3",
  "ab" }

-- ---- random choice

local random = {}

local function seed_with(seed)
  local state = seed % 2147483646 + 1
  function random.below(n)
    state = state * 16807 % 2147483647
    return state % n
  end
end

function random.of(list) return list[random.below(#list) + 1] end
function random.chance(percent) return random.below(100) < percent end

-- ---- the text of a policy

local INPUTS = { "req.size", "req.size", "req.size", "req.align", "req.node", "req.device",
  "req.live",
                 "loam.node(0).free", "loam.node(1).free", "loam.node(req.node).free",
                 "loam.pressure()" }

local function constant()
  return random.of {
    function() return tostring(random.below(20) - 3) end,
    function() return tostring(2 ^ random.below(48)) end,
    function() return tostring(random.below(100000)) end,
    function() return random.below(1000) .. "." .. random.below(100) end,
    function() return random.below(64) .. " * loam.KiB" end,
    function() return random.of { "math.huge", "-math.huge", "0/0", "-0.0", "1e300", "2^53",
      "1e-300" } end,
  }()
end

local number

local function operator() return random.of { " + ", " - ", " * ", " / ", " % " } end

local SHAPES = {
  function(d) return "(" .. number(d) .. operator() .. number(d) .. ")" end,
  function(d) return "(" .. number(d) .. operator() .. constant() .. ")" end,
  function(d) return "(" .. number(d) .. random.of { " / ", " * " } .. 2 ^ random.below(20)
    .. ")" end,
  function(d) return "(" .. number(d) .. " ^ " .. random.of { "2", "3", "0.5", "-1" } .. ")" end,
  function(d) return "math." .. random.of { "floor", "ceil", "abs" } .. "(" .. number(d) .. ")" end,
  function(d)
    return "math." .. random.of { "min", "max" } .. "(" .. number(d) .. ", " .. constant() .. ")"
  end,
  function(d) return "(-" .. number(d) .. ")" end,
  function(d) return "tonumber(" .. number(d) .. ")" end,
}

local function comparison() return random.of { " < ", " <= ", " > ", " >= ", " == ", " ~= " } end

function number(depth)
  if depth == 0 or random.chance(55) then return random.of(INPUTS) end
  return random.of(SHAPES)(depth - 1)
end

local function word() return random.of { "a", "b", "a.b", "numpy", "tensor", "x.y", "c", "" } end

local function pattern()
  return random.of { "a*", "*.b", "*", "?", "num*data", "", "*a*", "?.*" }
end

local TESTS = {
  function() return number(2) .. comparison() .. constant() end,
  function() return constant() .. comparison() .. number(2) end,
  function() return number(1) .. random.of { " < ", " <= ", " == " } .. number(1) end,
  function() return "req.zero" end,
  function() return ("req.tag:under(%q)"):format(word()) end,
  function() return ("req.tag:glob(%q)"):format(pattern()) end,
  function() return ("req.tag == %q"):format(word()) end,
  function() return ("req.tag:part(%d) == %q"):format(1 + random.below(3), word()) end,
  function() return ("sizes[%s]"):format(number(1)) end,
  function() return "names[req.tag]" end,
  function() return ("names[req.tag:part(%d)]"):format(1 + random.below(3)) end,
  function() return ("limit_of(req.tag:part(1)) < %s"):format(number(1)) end,
  function() return ("is_any(req.tag) and %s < 100"):format(number(0)) end,
  function() return ("req.tag:is(%q)"):format(word()) end,
  function() return ("req.tag:part(%d) == nil"):format(1 + random.below(3)) end,
  function()
    return ("(req.tag:part(%d) or 'none'):glob(%q)"):format(1 + random.below(3), pattern())
  end,
  function()
    return ("req.%s:glob(%q)"):format(random.of { "file", "func", "module" }, pattern())
  end,
  function() return ("req.line %s %d"):format(comparison(), random.below(100)) end,
  function() return ("type(%s) == \"number\""):format(number(0)) end,
}

local function test(depth)
  if depth == 0 or random.chance(60) then return random.of(TESTS)() end
  return random.of {
    function() return "(" .. test(depth - 1) .. " and " .. test(depth - 1) .. ")" end,
    function() return "(" .. test(depth - 1) .. " or " .. test(depth - 1) .. ")" end,
    function() return "not (" .. test(depth - 1) .. ")" end,
  }()
end

local function answer()
  return "return " .. random.of { "s1", "s2", "s3", "s4", "s1:or_else(s2)", "s3:or_else(s1)" }
end

local block

local STATEMENTS = {
  function(d, pad)
    return pad .. "if " .. test(2) .. " then\n" .. block(d - 1, pad .. "  ") .. pad .. "end\n"
  end,
  function(d, pad)
    return pad .. "if " .. test(1) .. " then\n" .. block(d - 1, pad .. "  ") .. pad .. "else\n"
      .. block(d - 1, pad .. "  ") .. pad .. "end\n"
  end,
  function(_, pad)
    return pad .. "local n = " .. number(2) .. "\n" .. pad .. "if n < " .. constant() .. " then "
      .. answer() .. " end\n"
  end,
  function(_, pad)
    return pad .. "for _, k in ipairs(steps) do if " .. number(0) .. " == k then " .. answer()
      .. " end end\n"
  end,
  function(_, pad)
    return pad .. "local chosen = " .. test(1) .. " and s1 or s2\n" .. pad .. "if "
      .. random.of(TESTS)() .. " then return chosen end\n"
  end,
}

function block(depth, pad)
  local out = {}
  if depth > 0 then
    for _ = 1, 1 + random.below(3) do out[#out + 1] = random.of(STATEMENTS)(depth, pad) end
  end
  if depth == 0 or random.chance(30) then
    out[#out + 1] = pad .. "do " .. answer() .. " end\n"
  end
  return table.concat(out)
end

local HEAD = [[
local s1 = loam.host { name = "s1", align = 64 }
local s2 = loam.host { name = "s2", zero = true }
local s3 = loam.system { name = "s3" }
local s4 = loam.deny { name = "s4" }
local sizes = { [0] = true, [16] = true, [4096] = true, [1.5] = true, [65536] = true }
local names = { a = true, b = true, ["a.b"] = true, tensor = true, c = true }
local steps = { 1, 64, 4096 }
local limits = { a = 100, b = 2 ^ 20, numpy = 2 ^ 30 }
local function limit_of(name) return limits[name] or 5 end
local function is_any(tag)
  for name in pairs(names) do if tag:under(name) then return true end end
  return false
end
]]

-- Returns the text of a policy. Blocks are nested at most `depth` deep (3 if it is nil). Equal
-- arguments give equal texts.
function generate.policy(seed, depth)
  seed_with(seed)
  return HEAD .. "return loam.policy {\n  pick = function(req)\n" .. block(depth or 3, "    ")
    .. "    return s1\n"
    .. "  end,\n}\n"
end

-- ---- plain Lua

-- Makes a strategy. Nothing is tried behind one that denies.
local function named(name, denies)
  return {
    name = name, denies = denies,
    or_else = function(a, b)
      return a.denies and a or named(a.name .. "," .. b.name, b.denies)
    end,
  }
end

local point -- the present request

local plain_loam = { KiB = 1024 }
function plain_loam.host(options) return named(options.name) end
plain_loam.system = plain_loam.host
function plain_loam.deny(options) return named(options.name, true) end
function plain_loam.node(n) return { free = point.node_free[n] or 0 } end
function plain_loam.pressure() return point.pressure end
function plain_loam.policy(given) return given.pick end

local plain_globals = { loam = plain_loam, math = math, ipairs = ipairs, pairs = pairs, type = type,
                        tonumber = tonumber }

local string_metatable = getmetatable("")
local helpers = setmetatable({ under = tag.under, glob = tag.glob, part = tag.part, is = tag.is },
  { __index = string })

-- Returns f(argument), in which strings have the methods of tags.
local function with_helpers(f, argument)
  local library = string_metatable.__index
  string_metatable.__index = helpers
  local result = f(argument)
  string_metatable.__index = library
  return result
end

function generate.plain(text)
  return assert(load(text, "=plain", "t", plain_globals))()
end

-- ---- comparing

local function numbers_in(text)
  local list = { 0, 2 ^ 47 }
  for digits in text:gmatch("%d+%.?%d*") do list[#list + 1] = tonumber(digits) end
  for power = 0, 47 do list[#list + 1] = 2 ^ power end
  return list
end

local function near(numbers, low, high)
  local n = math.floor(random.of(numbers) * random.of { 1, 1, 1, 1024, 2, 3,
    0.5 }) + random.below(3) - 1
  return math.max(low, math.min(high, n))
end

local function random_point(numbers)
  return {
    size = near(numbers, 0, 2 ^ 47), align = 2 ^ (4 + random.below(9)), zero = random.chance(50),
    node = random.below(4), device = random.below(3) - 1, live = near(numbers, 0, 2 ^ 50),
    line = random.below(100), pressure = random.below(101),
    node_free = { [0] = near(numbers, 0, 2 ^ 45), [1] = near(numbers, 0, 2 ^ 45) },
      device_free = {},
  }
end

local function plain_request(where)
  return { tag = where.tag, file = where.file, func = where.func, module = where.module,
           line = point.line, size = point.size, align = point.align, zero = point.zero,
           node = point.node, device = point.device, live = point.live }
end

-- Makes a name of one to four parts, some of which occur in policies.
local function random_name()
  if random.chance(20) then return random.of(TAGS) end
  local name = random.of { "a", "b", "ab", "", "c", "x", "numpy", "numdata", "tensor", "q" }
  for _ = 1, random.below(4) do name = name .. random.of { ".", ".", "" } .. word() end
  return name
end

local function random_site()
  return { tag = random_name(), file = random_name(), func = random_name(), module = random_name() }
end

-- Returns a function that gives a random site and a random point at each call. The numbers of the
-- point are near those in `text`.
function generate.requests(text)
  local numbers = numbers_in(text)
  return function() return random_site(), random_point(numbers) end
end

-- Forgets the plans of the policies so far.
generate.forget = core.forget

-- Returns a whole number from 0 to n - 1.
function generate.below(n) return random.below(n) end

-- Returns the names of the chain that `pick`, a function of generate.plain, gives.
function generate.decide(pick, where, at)
  point = at
  return with_helpers(pick, plain_request(where)).name
end

local names_of = setmetatable({}, { __mode = "k" }) -- leaf -> the names of its chain

-- Returns the answers of the compiled plan and of plain Lua to one request.
local function both(class, pick, where)
  local leaf = class.leaves[core.decide(class.plan, point) + 1]
  local names = names_of[leaf]
  if not names then
    names = leaf.words:gsub("' or else '", ","):gsub("'", "")
    names_of[leaf] = names
  end
  return names, with_helpers(pick, plain_request(where)).name
end

local MOST = { [0] = { "size", 2 ^ 47 }, [5] = { "live", 2 ^ 50 }, [8] = { "line", 2 ^ 31 - 1 } }

-- Gives an input of the request a number at a threshold of the plan, or beside it. The keys of MOST
-- are LM_IN_* of plan.h.
local function move_to_threshold(plan)
  if plan.nodes == 0 then return end
  local node = plan.node[random.below(plan.nodes)]
  local input = node.code_n == 0 and MOST[node.input]
  if not input then return end
  point[input[1]] = math.max(0, math.min(input[2], node.k + random.below(3) - 1))
end

local function describe(where)
  local parts = { ("tag %q"):format(where.tag) }
  for _, key in ipairs { "size", "align", "zero", "node", "device", "live", "pressure" } do
    parts[#parts + 1] = key .. " " .. tostring(point[key])
  end
  return table.concat(parts, ", ") .. (", free %s and %s"):format(point.node_free[0],
    point.node_free[1])
end

local FAIR = { leaves = true, expression = true, classes = true }

local function fault(d) return ("line %s: %s: %s"):format(d.line, d.class, d.reason) end

-- Compares the plan of a site with plain Lua at `points` requests, and the class tree with the
-- trie. Returns a message if they differ.
local function compare_site(find, plans, pick, where, numbers, points)
  local before = #policy.classes()
  local class = policy.class(where)
  if #policy.classes() ~= before then return ("tag %q has a new class"):format(where.tag) end
  if plans[find(where)] ~= class.plan then
    return ("the class tree gives another plan for tag %q"):format(where.tag)
  end
  for _ = 1, points do
    point = random_point(numbers)
    if random.chance(50) then move_to_threshold(class.plan) end
    local plan, plain = both(class, pick, where)
    if plan ~= plain then
      return ("plan gives %s, plain Lua %s for %s"):format(plan, plain, describe(where))
    end
  end
  return nil
end

-- Compiles a policy for all classes, and compares it for `sites` random sites at `points` requests
-- each. Returns the number of sites compared, or nil and a message. With `keeps` = "unchecked" the
-- compiler does not compare the plans with plain Lua itself.
function generate.compare(text, sites, points, keeps)
  core.forget()
  local made, errors = policy.open("generated.lua", text, keeps)
  if not made then return nil, fault(errors[1]) end
  errors = policy.compile_all()
  for _, d in ipairs(errors) do
    if not FAIR[d.class] then return nil, fault(d) end
  end
  if #errors > 0 then return 0 end
  local bytes, plans = policy.tree()
  local _, find = core.class_tree(bytes)
  local pick, numbers = generate.plain(text), numbers_in(text)
  for _ = 1, sites do
    local message = compare_site(find, plans, pick, random_site(), numbers, points)
    if message then return nil, message end
  end
  return sites
end

local JOINS = { least = 0, per_answer = 0 } -- of policy.lua: classes are joined in every policy

-- Like generate.compare, with classes that are joined where pick treats them alike.
function generate.compare_joined(...)
  local usual = policy.joins
  policy.joins = JOINS
  local compared, message = generate.compare(...)
  policy.joins = usual
  return compared, message
end

-- ---- the program

-- Returns the number after --NAME on the command line.
function generate.option(name, default)
  for i = 1, #arg do
    if arg[i] == "--" .. name then return assert(tonumber(arg[i + 1]), name .. " is a number") end
  end
  return default
end

-- Returns the depth of the policy of a seed. Of sixteen seeds, one has depth 3, three have depth 2,
-- and twelve have depth 1: a policy of depth 3 takes four times as long as one of depth 1.
local function depth_of(seed)
  local n = seed % 16
  return n == 0 and 3 or n <= 3 and 2 or 1
end

-- Returns whether the compiler also compares the plans of a seed with plain Lua, as it does at each
-- load. It does so for one seed in seven, because that takes most of the time of a load. This
-- program compares the plans of all seeds.
local function keeps_of(seed) return seed % 7 ~= 0 and "unchecked" or nil end

local function main()
  local option = generate.option
  local points, sites = option("points", 10), option("sites", 10)
  local function check(seed, add)
    local text = generate.policy(seed, depth_of(seed))
    local compare = seed % 2 == 0 and generate.compare_joined or generate.compare
    local compared, message = compare(text, sites, points, keeps_of(seed))
    if not compared then return message .. "\n" .. text end
    add("refused", compared == 0 and 1 or 0)
    add("requests", compared * points)
  end
  return require("workers").run {
    from = option("from", 1), count = option("count", 1000), jobs = option("jobs", 1),
    counters = { "requests", "refused" }, check = check,
    line = function(sums)
      return ("%d policies, %d requests, %d refused for their size, %d differences"):format(
        sums.seeds, sums.requests, sums.refused, sums.faults)
    end,
  }
end

if arg and arg[0] and arg[0]:find("generate%.lua$") then os.exit(main()) end

return generate
