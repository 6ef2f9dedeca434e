-- test - a policy's own tests and invariants, as TAP, and which leaves its tests reach.

local describe = require("loam.cli.describe")
local question = require("loam.cli.question")
local terminal = require("loam.cli.terminal")

local test = {
  summary = "runs a policy's tests and invariants",
  usage = "POLICY [--json]",
  takes = { name = "POLICY", least = 1, most = 1 },
  about = [[
The tests are decided by the compiled plan, as allocations are; the invariants of
`always` over every leaf of every plan. The output is TAP; its comments tell the leaves
that no test reaches. Exit status 0 if all pass, else 1.]],
  options = { { "json", nil, "the answer as a JSON object" } },
  example = [[
  $ loam test prod.lua
  TAP version 13
  1..3
  ok 1 - tensor.weights, 8388608 bytes
  ok 2 - log, 100 bytes
  ok 3 - always: logs never on huge pages
  # 2 of 2 leaves are reached by tests
]],
}

-- One point of TAP; a failing one carries what is known of it as YAML.
local function point(world, n, result, words, details)
  local mark = result.ok and world.paint("green", "ok") or world.paint("red", "not ok")
  world.write(("%s %d - %s\n"):format(mark, n, (terminal.plain(words):gsub("#", "\\#"))))
  if result.ok then return end
  world.write("  ---\n")
  for _, key in ipairs(details) do
    local value = result[key]
    if value ~= nil then
      world.write(type(value) == "number" and ("  %s: %d\n"):format(key, value)
        or ("  %s: %q\n"):format(key, terminal.plain(tostring(value))))
    end
  end
  world.write("  ...\n")
end

-- The tag is named, so what is asked about it goes without saying.
local function condition_texts(conditions)
  local out = {}
  for _, step in ipairs(conditions) do
    if not step.condition:find("^req%.tag%f[%W]") then
      out[#out + 1] = step.condition .. (step.holds and "" or " was false")
    end
  end
  return table.concat(out, ", ")
end

local function show_coverage(world, coverage)
  local words = "# %d of %d leaves are reached by tests\n"
  world.write(words:format(coverage.covered, coverage.leaves))
  for _, missed in ipairs(coverage.missed) do
    local why = terminal.plain(condition_texts(missed.conditions or {}))
    world.write(("# not reached: line %d, tag %s%s\n"):format(missed.line or 0,
      describe.tag(missed.tag), why == "" and "" or ": " .. why))
  end
end

local function show(world, answer)
  world.write(("TAP version 13\n1..%d\n"):format(#answer.tests + #answer.always))
  for n, result in ipairs(answer.tests) do
    point(world, n, result, result.what or "test " .. n, { "line", "got", "expect" })
  end
  for n, result in ipairs(answer.always) do
    point(world, #answer.tests + n, result, "always: " .. result.name, { "line", "what" })
  end
  if answer.coverage then show_coverage(world, answer.coverage) end
end

function test.run(world, given)
  local text = question.ask(world, "test", given[1], given)
  local answer = question.read(world, text)
  if given.json then
    world.write(text .. "\n")
    return question.status(answer)
  end
  if answer.tests then show(world, answer) else world.write("Bail out! the policy is refused\n") end
  question.is_refused(world, answer)
  return question.status(answer)
end

return test
