-- json_answer_spec.lua - the members that all answers of the command in JSON share.

local run = require("canned_context").run

describe("an answer in JSON", function()
  it("gives the reason of a failure", function()
    local status, context = run("status --json")
    assert.equal(1, status)
    local words = "no program of yours runs under loam"
    assert.equal('{"verb":"status","version":1,"ok":false,"error":"' .. words .. '"}\n',
      context.out)
    assert.equal("loam: " .. words .. "\n", context.err)
    for _, refusal in ipairs { '{"ok":false,"error":"no \\"room\\""}', '{"ok":false}' } do
      status, context = run("stats 42 --json", { [42] = refusal })
      assert.equal(1, status)
      assert.matches('^{"verb":"stats","version":1,"ok":false,"error":"no [^\n]*"}\n$', context.out)
      assert.equal(1, (run("stats 42", { [42] = refusal })))
    end
    status, context = run("status x --json")
    assert.equal(2, status)
    assert.equal("", context.out)
  end)

  it("keeps the members of the host", function()
    local _, context = run("stats 42 --json", { [42] = '{"pid":42,"rows":[]}\n' })
    assert.equal('{"verb":"stats","version":1,"ok":true,"pid":42,"rows":[]}\n', context.out)
    _, context = run("reload 42 --json", { [42] = '{"ok":false,"error":"x","generation":1}' })
    assert.equal('{"verb":"reload","version":1,"ok":false,"error":"x","generation":1}\n',
      context.out)
    _, context = run("doctor --json", { machine = "{}" })
    assert.equal('{"verb":"doctor","version":1,"ok":true}\n', context.out)
  end)

  it("is named in the help of each command that has one", function()
    assert.matches("share/loam/schema/ps.json", select(2, run("ps --help")).out, 1, true)
    assert.not_matches("share/loam/schema", select(2, run("run --help")).out, 1, true)
  end)

  it("has no schema where the command has no --json", function()
    for _, name in ipairs { "run", "nosuch", "../check", "check.x" } do
      local status, context = run("schema " .. name)
      assert.equal(2, status)
      assert.matches("'" .. name .. "' is no command that takes --json", context.err, 1, true)
    end
  end)
end)
