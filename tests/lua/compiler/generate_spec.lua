-- generate_spec.lua - compares the compiled plans of random policies with plain Lua.

require("support")
local generate = require("generate")

local POLICIES, SITES, REQUESTS = 500, 12, 8

describe("random policies", function()
  it("decide as plain Lua does", function()
    local sites = 0
    for seed = 1, POLICIES do
      local compare = seed % 2 == 0 and generate.compare_joined or generate.compare
      local compared, message = compare(generate.policy(seed), SITES, REQUESTS)
      assert.is_truthy(compared, ("seed %d: %s"):format(seed, tostring(message)))
      sites = sites + compared
    end
    assert.is_true(sites > POLICIES * SITES / 2)
  end)

  it("come out the same for the same seed", function()
    assert.equal(generate.policy(7), generate.policy(7))
    assert.are_not.equal(generate.policy(7), generate.policy(8))
  end)
end)
