-- top_unread_spec.lua - `loam top` with programs that cannot be read.

local canned = require("canned_context")
local canned_figures = require("canned_figures")
local json = require("loam.report.json")

local status, figures = canned_figures.status, canned_figures.figures

-- Returns the words of the line about a program, without its name.
local function cells(text, name)
  local out = {}
  for word in text:match(name .. " ([^\n]*)"):gmatch("%S+") do out[#out + 1] = word end
  return out
end

describe("loam top with a program that cannot be read", function()
  local three = { boards = { status(7), status(8), status(9) },
                  figures = { [7] = "process 7: only root may read it", [8] = figures {},
                              [9] = figures {} } }

  it("shows no figures of its group", function()
    local _, context = canned.run("top --by service --count 1", three)
    assert.same({ "1", "-", "-", "-", "-", "-" }, { unpack(cells(context.out, "prog7"), 1, 6) })
    assert.same({ "1", "0", "B", "0", "-", "-", "0", "B" },
      { unpack(cells(context.out, "prog8"), 1, 8) })
    _, context = canned.run("top --by service --count 1 --json", three)
    local rows = json.decode(context.out:match("[^\n]+")).rows
    assert.equal("prog7", rows[3].name)
    assert.same({ 0, 0 }, { rows[3].live_bytes, rows[3].peak_bytes }) -- always there in JSON
    assert.is_nil(rows[3].live_blocks)
  end)

  it("names the process in the error", function()
    local answers = { boards = { status(5, { state = "unknown" }) } }
    local result, context = canned.run("top 5 --count 1", answers, nil, nil, function(context)
      context.exists["/proc/5"] = true
    end)
    assert.equal(1, result)
    assert.equal("loam: process 5: it runs in another PID namespace, such as a container\n",
      context.err)
  end)
end)
