-- machine_spec.lua - the warnings of check about what this machine does not serve as a policy asks.

local support = require("support")
local core, inspect = support.core, support.inspect

-- Returns the warnings of an answer that are about this machine.
local function of_machine(answer)
  local list = {}
  for _, warning in ipairs(answer.warnings) do
    if warning.class == "machine" then list[#list + 1] = warning end
  end
  return list
end

describe("check", function()
  it("warns of what this machine will not do", function()
    local text = support.file("return big:or_else(a)", "local big = loam.host { huge = '2MiB' } ")
    local answer = inspect(text, "verb check")[1]
    assert.is_true(answer.ok)
    assert.matches("no 2MiB huge pages are reserved", of_machine(answer)[1].reason)
  end)

  it("warns of nodes without the reserved huge pages that a strategy demands there", function()
    local text = support.file("return big:or_else(a)",
      "local big = loam.host { huge = '2MiB', numa = { 0, 1 } } ")
    local function warnings(of_node_1)
      core.the_machine.hugepages["2MiB"], core.pages_of_node[1]["2MiB"] = 8, of_node_1
      local answer = inspect(text, "verb check")[1]
      core.the_machine.hugepages["2MiB"], core.pages_of_node[1]["2MiB"] = 0, nil
      return of_machine(answer)
    end
    assert.matches("no 2MiB huge pages are reserved on nodes 0, 1 ", warnings(0)[1].reason)
    assert.same({}, warnings(8))
  end)

  it("warns of huge pages that are switched off for the process", function()
    local text = support.file("return h", "local h = loam.host { huge = 'thp' } ")
    assert.same(0, #of_machine(inspect(text, "verb check")[1]))
    core.the_machine.thp_disabled = true
    local answer = inspect(text, "verb check")[1]
    core.the_machine.thp_disabled = nil
    assert.is_true(answer.ok)
    assert.matches("huge pages are switched off for this process", of_machine(answer)[1].reason)
  end)

  it("warns if memory pressure is read where the kernel does not count stalls", function()
    local text = support.file("return loam.pressure() > 10 and b or a")
    assert.same(0, #of_machine(inspect(text, "verb check")[1]))
    core.has_stalls = false
    local answer = inspect(text, "verb check")[1]
    core.has_stalls = true
    assert.is_true(answer.ok)
    assert.matches("loam.pressure%(%) is 0 here", of_machine(answer)[1].reason)
    assert.matches("psi=1", of_machine(answer)[1].suggestion)
  end)

  it("warns of what a container does not let happen", function()
    local text = support.file("return a", "local n = loam.host { numa = 0, name = 'n' } "
      .. "local l = loam.host { numa = 'local', name = 'l' } "
      .. "local p = loam.host { prefault = true, name = 'p' } "
      .. "local k = loam.host { lock = true, name = 'k' } "
      .. "local h = loam.host { huge = 'thp', name = 'h' } ")
    assert.same(0, #of_machine(inspect(text, "verb check")[1]))
    core.the_refused = { numa = 1, prefault = 1, lock = 1, huge = 1 }
    local said = {}
    for _, warning in ipairs(of_machine(inspect(text, "verb check")[1])) do
      local name, reason = warning.reason:match("^strategy '(.)': (.*)$")
      said[name] = reason
    end
    core.the_refused = {}
    assert.matches("mbind is refused here: numa needs it", said.n)
    assert.matches("madvise is refused here: prefault needs it", said.p)
    assert.matches("mlock is refused here: lock needs it", said.k)
    assert.matches("madvise is refused here: its memory has small pages", said.h)
    assert.is_nil(said.l)
  end)
end)
