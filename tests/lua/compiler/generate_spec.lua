-- generate_spec.lua - random policies: compiled plans against plain Lua.

require("support")
local generate = require("generate")

local POLICIES, TAGS, REQUESTS = 2000, 2, 40

describe("random policies", function()
  it("decide as plain Lua does", function()
    local plans = 0
    for seed = 1, POLICIES do
      local compared, message = generate.compare(generate.policy(seed), TAGS, REQUESTS)
      assert.is_truthy(compared, ("seed %d: %s"):format(seed, tostring(message)))
      plans = plans + compared
    end
    assert.is_true(plans > POLICIES * 3 / 2)
  end)

  it("come out the same for the same seed", function()
    assert.equal(generate.policy(7), generate.policy(7))
    assert.are_not.equal(generate.policy(7), generate.policy(8))
  end)
end)
