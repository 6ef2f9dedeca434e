-- plan.lua - shows the decision table of a tag: sizes, other conditions, strategies, lines.

local describe = require("loam.command.describe")
local policy_query = require("loam.command.policy_query")
local policy_stream = require("loam.command.policy_stream")
local terminal = require("loam.command.terminal")
local units = require("loam.command.units")

local plan = {
  summary = "shows the whole decision table of a tag",
  usage = "POLICY --tag T [--file F] [--func F] [--module M] [--line N]\n"
    .. "                 [--json]",
  takes = { name = "POLICY", least = 1, most = 1 },
  about = [[
One row for each leaf of the plan that the policy compiles to: the sizes and
other conditions that lead to the leaf, the strategy with its fallbacks, and
the line of the policy that returns the strategy.]],
  options = {
    { "tag", "T", "the tag; \"\" for memory without a tag", kind = "tag", required = true },
    { "file", "F", "source file of the call", kind = "site" },
    { "func", "F", "function of the call", kind = "site" },
    { "module", "M", "program or library of the call", kind = "site" },
    { "line", "N", "line of the call", kind = "number" },
    { "json", nil, "the answer as a JSON object" },
  },
  example = [[
  $ loam plan prod.lua --tag tensor.weights
  tag tensor.weights: 2 leaves
  SIZE      WHEN  STRATEGY               LINE
  >= 4 MiB        tensors, else scratch  11
  < 4 MiB         scratch                13
]],
}

-- ---- sizes

-- Sizes are integers, so each comparison gives a least and a greatest size for which it is true.
local COMPARE = {
  ["<"] = function(k) return nil, math.ceil(k) - 1 end,
  ["<="] = function(k) return nil, math.floor(k) end,
  [">"] = function(k) return math.floor(k) + 1, nil end,
  [">="] = function(k) return math.ceil(k), nil end,
  ["=="] = function(k) return k, k end,
}
local OPPOSITE = { ["<"] = ">=", ["<="] = ">", [">"] = "<=", [">="] = "<" }

-- Narrows the range by a condition that is on the size alone. Returns false for other conditions.
local function narrow(range, step)
  local compare, k = step.condition:match("^req%.size ([<>=]=?) (-?%d+%.?%d*)$")
  if compare and not step.holds then compare = OPPOSITE[compare] end
  if not compare or not COMPARE[compare] then return false end
  local low, high = COMPARE[compare](tonumber(k))
  range.low = math.max(range.low, low or 0)
  range.high = math.min(range.high, high or math.huge)
  return true
end

local function range_text(range)
  if range.low == range.high then return units.exact(range.low) end
  local below = range.high < math.huge and "< " .. units.exact(range.high + 1)
  if range.low == 0 then return below or "any" end
  local from = units.exact(range.low)
  return below and from .. " to " .. below or ">= " .. from
end

local function other_text(step)
  if step.holds then return step.condition end
  return "not " .. (step.condition:find(" ") and "(" .. step.condition .. ")" or step.condition)
end

-- Returns the conditions that are true in one row and false in another. The others (all that are
-- about the tag) do not tell rows apart, and are not shown.
local function undecided(rows)
  local seen, both = {}, {}
  for _, row in ipairs(rows) do
    for _, step in ipairs(row.conditions) do
      local before = seen[step.condition]
      if before ~= nil and before ~= step.holds then both[step.condition] = true end
      seen[step.condition] = step.holds
    end
  end
  return both
end

-- Returns whether a condition says only that the size is not a number outside the range.
local function is_implied(range, step)
  local k = not step.holds and tonumber(step.condition:match("^req%.size == (-?%d+%.?%d*)$"))
  return k and (k < range.low or k > range.high)
end

local function row_text(row, shown)
  local range, rest, others = { low = 0, high = math.huge }, {}, {}
  for _, step in ipairs(row.conditions) do
    if not narrow(range, step) and shown[step.condition] then rest[#rest + 1] = step end
  end
  for _, step in ipairs(rest) do
    if not is_implied(range, step) then others[#others + 1] = other_text(step) end
  end
  return {
    range_text(range), table.concat(others, " and "), describe.chain(row.chain or { row.strategy }),
    row.line and ("%d"):format(row.line) or "",
  }
end

-- ---- the verb

local function show(context, answer)
  context.write(("tag %s: %s\n"):format(context.paint("bold", describe.tag(answer.tag)),
    units.plural(answer.leaves, "leaf", "leaves")))
  local rows, shown = { { "SIZE", "WHEN", "STRATEGY", "LINE" } }, undecided(answer.rows)
  for _, row in ipairs(answer.rows) do rows[#rows + 1] = row_text(row, shown) end
  context.write(terminal.table(rows, nil, context.paint))
end

function plan.run(context, given)
  local text = policy_query.ask(context, "plan", policy_stream.open(context, given[1]), given)
  local answer = policy_query.read(context, text)
  if given.json then
    context.write(text .. "\n")
  elseif not policy_query.is_refused(context, answer) then
    show(context, answer)
  end
  return policy_query.status(answer)
end

return plan
