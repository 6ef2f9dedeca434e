-- help_spec.lua - the help of the command and of its verbs.

local run = require("canned_context").run

describe("loam help", function()
  it("gives help that fits into 80 columns", function()
    local _, general = run("--help")
    local texts = { general.out }
    for verb in general.out:gmatch("\n  (%l+) ") do
      local _, context = run("help " .. verb)
      texts[#texts + 1] = context.out
    end
    assert.equal(24, #texts)
    for line in table.concat(texts, "\n"):gmatch("[^\n]+") do
      assert.is_true(#line <= 80, line)
    end
  end)
end)
