-- metrics_policy_spec.lua - the series of `loam metrics` that tell whether a policy is followed.

local canned = require("canned_context")

local function page_of(watching)
  local status, context = canned.run("metrics", { boards = { {
    pid = 42, program = "python3", state = "running", since_ms = 5, watching = watching,
  } } })
  assert.equal(0, status)
  return context.out
end

describe("the page", function()
  it("tells whether something follows the policy file", function()
    local series = 'loam_policy_watched{pid="42",program="python3"} '
    assert.matches(series .. "1\n", page_of(true), 1, true)
    assert.matches(series .. "0\n", page_of(false), 1, true)
  end)
end)
