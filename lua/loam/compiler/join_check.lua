-- join_check.lua - compares the plans of joined classes with plain Lua, at sites drawn at random.
--
-- Each plan is compared with plain Lua for the site that it was compiled for (verify.lua). Where
-- classes were joined, sites of one class take different ways through pick: if path_graph.lua took
-- two states for equal that are not, some of these sites would get a wrong plan. So pick runs here
-- with random answers to its questions, and a site that gives these answers is compared. Every load
-- compares the same sites.

local all_classes = require("loam.compiler.all_classes")
local budget = require("loam.compiler.budget")
local compile = require("loam.compiler.compile")
local request = require("loam.symbolic.request")
local site = require("loam.symbolic.site")
local site_classes = require("loam.compiler.site_classes")
local site_search = require("loam.compiler.site_search")

local join_check = {}

local MOST_SITES = 256
local MOST_SEARCHES = 4096 -- of all sites together: one for each question that pick asks
local REQUESTS = 8 -- for each site

local seed

local function below(n)
  seed = seed * 16807 % 2147483647
  return math.floor(seed / 1024) % n
end

-- Returns a number for an input: near a number of the policy, or a power of two.
local function number_for(input, constants)
  local power = 2 ^ below(48)
  if input.power then return math.max(input.least, math.min(power, 2 ^ 14)) end
  local near = power
  if #constants > 0 and below(4) > 0 then near = constants[below(#constants) + 1] end
  return math.max(input.least, math.min(math.floor(near) + below(3) - 1, input.most))
end

local function random_point(constants)
  local point = request.point(0)
  for _, input in ipairs(request.inputs()) do
    request.write(point, input, number_for(input, constants))
  end
  return point
end

-- Draws an answer: a number for all_classes.draw. At every second site most answers are no: many a
-- policy returns at the first yes, and random answers would seldom reach its later questions.
local function draw_answer(observation, number)
  if number % 2 == 0 and below(16) > 0 then return #site_search.answers(observation) - 2 end
  return below(2 ^ 20)
end

-- Runs pick with random answers, for the numbers of `point`. Returns a site that gives the answers,
-- and the number of questions. `number` is the number of the site.
local function draw_site(policy, point, number)
  local where, path, given = { tag = "", file = "", func = "", module = "" }, {}, {}
  site.connect_answers(function(observation)
    if given[observation] == nil then
      budget.step(("comparing joined classes with plain Lua, tag %d, question %d"):format(number,
        #path + 1))
      where = all_classes.draw(path, observation, where, draw_answer(observation, number))
      given[observation] = path[#path][2]
    end
    return given[observation]
  end)
  local ok, problem = pcall(compile.chain, policy, where, point)
  site.connect_answers(nil)
  if not ok then error(problem, 0) end
  return where, #path
end

-- Compares the plans of a trie whose classes were joined, all of which are compiled.
---@return string|nil, table|nil what differs, in words, and the site
function join_check.run(policy, trie)
  seed = 1
  local searches = 0
  for i = 1, MOST_SITES do
    if searches > MOST_SEARCHES then return nil end
    local point = random_point(policy.constants)
    local where, asked = draw_site(policy, point, i)
    searches = searches + asked
    local points = { point }
    for at = 2, REQUESTS do points[at] = random_point(policy.constants) end
    local class = site_classes.find(trie, where)
    if not class then return "no plan", where end
    local difference = compile.difference(policy, where, class, points)
    if difference then return difference, where end
  end
  return nil
end

return join_check
