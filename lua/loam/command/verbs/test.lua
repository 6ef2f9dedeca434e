-- test.lua - runs the tests and invariants of a policy, as TAP, and shows which leaves tests reach.

local describe = require("loam.command.describe")
local policy_query = require("loam.command.policy_query")
local policy_stream = require("loam.command.policy_stream")
local quoted = require("loam.report.lua_text").quoted
local terminal = require("loam.command.terminal")
local units = require("loam.command.units")

local test = {
  summary = "runs a policy's tests and invariants",
  usage = "POLICY [--json]",
  takes = { name = "POLICY", least = 1, most = 1 },
  about = [[
The compiled plan decides the tests, as it decides allocations; the invariants
of `always` are decided at every leaf of every plan. The output is TAP; its
comments list the leaves that no test reaches. Exit status 0: all pass. 1: one
fails.]],
  options = { { "json", nil, "the answer as a JSON object" } },
  example = [[
  $ loam test prod.lua
  TAP version 13
  1..3
  ok 1 - tag 'tensor.weights', size 8388608
  ok 2 - tag 'log', size 100
  ok 3 - always: logs never on huge pages
  # 2 of 2 leaves are reached by tests
]],
}

-- TAP's "Bail out!" would also end the tests of other policies, which prove(1) runs afterwards.
local REFUSED = "TAP version 13\n1..1\nnot ok 1 - the policy is taken\n"

-- Writes one test point of TAP; a failing one with its details as YAML.
local function point(context, n, result, words, details)
  local mark = result.ok and context.paint("green", "ok") or context.paint("red", "not ok")
  context.write(("%s %d - %s\n"):format(mark, n, (terminal.plain(words):gsub("#", "\\#"))))
  if result.ok then return end
  context.write("  ---\n")
  for _, key in ipairs(details) do
    local value = result[key]
    if value ~= nil then
      context.write(type(value) == "number" and ("  %s: %d\n"):format(key, value)
        or ("  %s: %s\n"):format(key, terminal.plain(quoted(tostring(value)))))
    end
  end
  context.write("  ...\n")
end

-- Returns conditions in words, without those about the tag: the line shows the tag itself.
local function condition_texts(conditions)
  local out = {}
  for _, step in ipairs(conditions) do
    if not step.condition:find("^req%.tag%f[%W]") then
      out[#out + 1] = step.condition .. (step.holds and "" or " was false")
    end
  end
  return table.concat(out, ", ")
end

-- Returns a line for each leaf that no test reaches, and how often by line: classes that differ in
-- the file, function or module of the call have equal lines.
local function missed_lines(coverage)
  local lines, times = {}, {}
  for _, missed in ipairs(coverage.missed) do
    local why = terminal.plain(condition_texts(missed.conditions or {}))
    local line = ("line %d, tag %s%s"):format(missed.line or 0, describe.tag(missed.tag),
      why == "" and "" or ": " .. why)
    if not times[line] then lines[#lines + 1] = line end
    times[line] = (times[line] or 0) + 1
  end
  return lines, times
end

local function show_coverage(context, coverage)
  context.write(("# %d of %s reached by tests\n"):format(coverage.covered,
    units.plural(coverage.leaves, "leaf is", "leaves are")))
  local lines, times = missed_lines(coverage)
  for _, line in ipairs(lines) do
    context.write(("# not reached%s: %s\n"):format(
      times[line] > 1 and (" in %d classes"):format(times[line]) or "", line))
  end
end

local function show(context, answer)
  context.write(("TAP version 13\n1..%d\n"):format(#answer.tests + #answer.always))
  for n, result in ipairs(answer.tests) do
    point(context, n, result, result.what or "test " .. n, { "line", "got", "expect" })
  end
  for n, result in ipairs(answer.always) do
    point(context, #answer.tests + n, result, "always: " .. result.name, { "line", "what" })
  end
  if answer.coverage then show_coverage(context, answer.coverage) end
end

function test.run(context, given)
  local text = policy_query.ask(context, "test", policy_stream.open(context, given[1]), given)
  local answer = policy_query.read(context, text)
  if given.json then
    context.write(text .. "\n")
    return policy_query.status(answer)
  end
  if answer.tests then
    show(context, answer)
  else
    context.write(REFUSED)
  end
  policy_query.is_refused(context, answer)
  return policy_query.status(answer)
end

return test
