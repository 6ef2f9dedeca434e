-- top_unread_spec.lua - `loam top` with programs that cannot be read.

local canned = require("canned_context")
local canned_figures = require("canned_figures")
local collect = require("loam.command.top.collect")
local groups = require("loam.command.top.groups")
local json = require("loam.report.json")
local view = require("loam.command.top.view")

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

  it("says that programs of another version are not shown", function()
    local other = { other_version = "7-1-2.board", folder = "/run/loam" }
    local line = "loam top: /run/loam/7-1-2.board: programs on this board have another version of "
      .. "loam than this command, 1.2.3, and are not shown until they are started again\n"
    local answers = { boards = { other } }
    local _, context = canned.run("top --count 1", answers)
    assert.equal(line .. "no program of yours runs under this version of loam\n", context.err)
    answers = { boards = { status(8), other }, figures = { [8] = figures {} } }
    _, context = canned.run("top --count 1", answers)
    assert.equal(line, context.err)
    assert.matches("1 process, ", context.out, 1, true)
    -- On a terminal the line stands above the table.
    local collected = collect.new(canned.new(answers), nil, 1000)
    local total = groups.total(collect.round(collected, false, true))
    local lines = table.concat(view.sums { total = total, collected = collected }, "\n")
    assert.matches("not shown: programs on 1 board of another version of loam", lines, 1, true)
    collected = collect.new(canned.new { boards = { other } }, nil, 1000)
    total = groups.total(collect.round(collected, false, true))
    assert.equal("no program of yours runs under this version of loam",
      view.sums({ total = total, collected = collected })[1])
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
