-- diff_sites_spec.lua - the walk of `loam diff` through two policies: it ends where policies join
-- many ways, and shows that it goes on.

local support = require("support")
local canned = require("canned_context")
local compare = require("compare")
local regions = require("loam.command.diff.regions")
local sites = require("loam.command.diff.sites")

-- Compares two policies with these bodies of pick.
local function diff(old, new)
  return regions.compare(compare.ask(support.file(old), "verb nodes"),
    compare.ask(support.file(new), "verb nodes"))
end

-- Runs the command on two policies. Returns its exit status, its output and its errors. `prepare`
-- may change the context.
local function run(old, new, prepare)
  local status, context = canned.run("diff old.lua new.lua", nil, nil,
    function(path, query) return compare.ask(path == "old.lua" and old or new, query) end, prepare)
  return status, context.out, context.err
end

-- A body that counts in a tag the letters from `first` on to `last`; more than `least` give a.
local function counting(first, last, least)
  local list = { "local n = 0 " }
  for i = first, last, first < last and 1 or -1 do
    list[#list + 1] = ('if req.tag:glob("*%c*") then n = n + 1 end '):format(96 + i)
  end
  return table.concat(list) .. ("if n > %d then return a end return b"):format(least)
end

describe("the walk through two policies", function()
  it("does not walk all ways of graphs that join their ways", function()
    local made = diff(counting(1, 14, 6), counting(1, 14, 7)) -- 3,432 ways lead to the difference
    assert.is_true(made.is_partial)
    assert.equal("abcdefg", made.regions[1].sites[1].tag)
    assert.is_true(#made.regions[1].sites < 400)
    for _, words in ipairs(made.regions[1].questions) do assert.not_matches("^not ", words) end
    local _, out = run(support.file(counting(1, 14, 6)), support.file(counting(1, 14, 7)))
    assert.matches("moved      abcdefg and at least 2%d%d other classes: any size\n", out)
    made = diff(counting(1, 6, 2), counting(1, 6, 3))
    assert.equal(20, #made.regions[1].sites)
    assert.is_false(made.is_partial)
  end)

  it("shows on a terminal that it goes on", function()
    local function on_terminal(context)
      context.terminal = true
      context.posix.clock = function()
        context.clock = context.clock + 100
        return context.clock
      end
    end
    local old, new = support.file(counting(1, 6, 2)), support.file(counting(1, 6, 3))
    local _, _, err = run(old, new, on_terminal)
    assert.matches("^\rcomparing the policies, 2 s so far\27%[K\rcomparing the policies, 2 s so "
      .. "far\27%[K\rcomparing the policies, 2 s [^\n]*\r\27%[K$", err)
    assert.equal("", (select(3, run(old, new))))
  end)

  it("is refused where two policies have too many classes together", function()
    local most = sites.MOST_STEPS
    sites.MOST_STEPS = 100
    local status, out, err = run(support.file(counting(1, 9, 3)),
      support.file(counting(9, 1, 3)))
    sites.MOST_STEPS = most
    assert.same({ 2, "" }, { status, out })
    assert.equal("loam: the two policies have too many classes of tags together to be compared; "
      .. "ask questions that both ask in one order\n", err)
  end)
end)
