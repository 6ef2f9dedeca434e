-- confirm.lua - answers the query `confirm`: the strategies of single requests, for `loam diff`.
--
-- Each request is followed through pick, as `explain` does it, and the compiled plan has to decide
-- as pick does. A line `request` of the query has these words: tag, file, function and module, each
-- as "h" and its bytes in hexadecimal; then the other inputs as NAME=NUMBER; `node_free:0` is the
-- free memory of node 0. The answer has a line for each request, in their order: `chain`, then the
-- name and the description of each member of the chain in hexadecimal; or `failed` and the reason.

local budget = require("loam.compiler.budget")
local compile = require("loam.compiler.compile")
local core = require("loam.core")
local hex = require("loam.report.hex")
local policy = require("loam.compiler.policy")
local request = require("loam.symbolic.request")
local strategy = require("loam.language.strategy")

local confirm = {}

local FIELDS = { "tag", "file", "func", "module" }

local function set(point, name, value)
  local free, n = string.match(name, "^(%a+_free):(%d+)$")
  if free then
    point[free][tonumber(n)] = value
  elseif name == "zero" then
    point.zero = value == 1
  else
    point[name] = value
  end
end

-- Reads the words of one request. Returns its site and its point.
local function read(text)
  local where, point, i = {}, request.point(0), 0
  point.node_free, point.device_free = {}, {}
  for word in string.gmatch(text, "%S+") do
    i = i + 1
    if FIELDS[i] then
      where[FIELDS[i]] = hex.decode(word)
    else
      local name, value = string.match(word, "^([^=]+)=(.*)$")
      set(point, name, tonumber(value))
    end
  end
  return where, point
end

local function failed(reason) core.write("failed " .. hex.encode(reason) .. "\n") end

local function write_one(made, text)
  local where, point = read(text)
  local class = policy.class(where)
  if class.errors then return failed(class.errors[1].reason) end
  budget.step("explaining tag '" .. where.tag .. "', size " .. string.format("%d", point.size))
  local chain, problem = compile.chain(made, where, point)
  if not chain then return failed(problem.reason) end
  if not compile.agrees(class, point, chain) then
    return failed("the plan gives another strategy than pick for " .. request.words(point))
  end
  local out = { "chain" }
  for _, member in ipairs(strategy.members(chain)) do
    out[#out + 1] = hex.encode(member.name)
    out[#out + 1] = hex.encode(strategy.described(member))
  end
  core.write(table.concat(out, " ") .. "\n")
end

function confirm.run(made, asked)
  for i, text in ipairs(asked.requests) do
    budget.step("confirming request " .. i)
    write_one(made, text)
  end
  return true
end

return confirm
