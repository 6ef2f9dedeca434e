-- dsl_spec.lua - constructors, their options, chains, and strategies that this machine cannot
-- serve.

local support = require("support")
local strategy = require("loam.language.strategy")

-- Returns the description that core gets if pick returns the result of this constructor.
local function described(constructor)
  local made, errors = support.open("local s = " .. constructor
    .. "\nreturn loam.policy { pick = function(req) return s end }\n")
  if not made then error(errors[1].reason, 0) end
  local class = require("loam.compiler.policy").class { tag = "" }
  if class.errors then error(class.errors[1].reason, 0) end
  return support.core.description(class.plan.chain[0])
end

local function refused(constructor, reason, hint)
  local d = support.refused("\nlocal s = " .. constructor
    .. "\nreturn loam.policy { pick = function(req) return s end }\n")
  assert.is_truthy(d, "was not refused: " .. constructor)
  assert.matches(reason, d.reason)
  assert.equal(2, d.line, d.reason)
  if hint then assert.matches(hint, d.suggestion) end
end

describe("options of host", function()
  it("reach core as it takes them", function()
    local d = described [[loam.host { name = "x", align = 4096, limit = 2 * loam.MiB,
      soft = loam.MiB, huge = "thp", zero = true, prefault = true, lock = true, guard = true }]]
    assert.same({ kind = "host", name = "x", align = 4096, limit = 2 ^ 21, soft = 2 ^ 20,
                  huge = "thp", zero = true, prefault = true, lock = true, guard = 1 }, d)
    assert.equal("kv", described("loam.host { limit = 4096, shared = 'kv' }").shared)
    assert.equal("never", described("loam.host { huge = false }").huge)
    assert.equal("default", described("loam.host {}").huge)
    assert.equal(7, described("loam.host { guard = 7 }").guard)
    assert.equal(0, described("loam.host { guard = false }").guard)
  end)

  it("place memory on nodes", function()
    assert.same({ mode = "local" }, described([[loam.host { numa = "local" }]]).numa)
    assert.same({ mode = "interleave" }, described([[loam.host { numa = "interleave" }]]).numa)
    assert.same({ mode = "bind", nodes = { 1 } }, described("loam.host { numa = 1 }").numa)
    assert.same({ mode = "bind", nodes = { 0, 1 } },
      described("loam.host { numa = { 1, 0 } }").numa)
    assert.same({ mode = "prefer", nodes = { 1 } },
      described("loam.host { numa = { prefer = 1 } }").numa)
    assert.same({ mode = "weighted", nodes = { 0, 1 }, weights = { [0] = 3, [1] = 1 } },
      described("loam.host { numa = { weights = { [0] = 3, [1] = 1 } } }").numa)
    assert.same({ 0, 1 }, described("loam.host { numa = loam.nodes() }").numa.nodes)
    local strings = { ["0-1"] = { 0, 1 }, ["!1"] = { 0 }, ["+1"] = { 1 }, all = { 0, 1 } }
    for text, nodes in pairs(strings) do
      assert.same({ mode = "bind", nodes = nodes },
        described(("loam.host { numa = %q }"):format(text)).numa)
    end
    assert.same({ mode = "prefer", nodes = { 1 } },
      described("loam.host { numa = { prefer = '+1' } }").numa)
  end)

  it("are checked by type and range", function()
    refused("loam.host { align = 48 }", "align = 48: must be a power of two")
    refused("loam.host { align = 2^31 }", "power of two")
    refused("loam.host { align = 0/0 }", "power of two")
    refused("loam.host { align = '64' }", 'align = "64"')
    refused("loam.host { limit = 0 }", "limit = 0")
    refused("loam.host { limit = 1.5 }", "limit = 1.5")
    refused("loam.host { limit = -1 }", "limit")
    refused("loam.host { limit = 0/0 }", "limit")
    refused("loam.host { limit = math.huge }", "limit")
    refused("loam.host { limit = 2^48 }", "2%^47")
    refused("loam.host { limit = '2GB' }", 'limit = "2GB"', "^write 2 %* loam.GiB$")
    refused("loam.host { limit = 4096, soft = '80%' }", 'soft = "80%%"')
    refused("loam.host { limit = 0.3 * loam.GiB }", "limit = 322122547.2",
      "^write math.floor%(…%) around it$")
    refused("loam.host { soft = 4096 }", "soft = 4096: there is no limit",
      "give the strategy a limit")
    refused("loam.host { limit = 4096, soft = 4097 }",
      "soft = 4097: must be at most the limit, 4096")
    refused("loam.host { limit = 4096, soft = 0 }", "soft = 0")
    refused("loam.host { shared = 'kv' }", 'shared = "kv": there is no limit to share',
      "give the strategy a limit")
    refused("loam.host { limit = 4096, shared = true }", "shared = true: must be a string")
    refused("loam.host { limit = 4096, shared = '' }", 'shared = ""')
    refused("loam.host { limit = 4096, shared = ('x'):rep(64) }", "63 bytes")
    refused("loam.host { limit = 4096, share = 'kv' }", 'no option "share"', "shared")
    refused("loam.host { zero = 1 }", "true or false")
    refused("loam.host { guard = 0 }", "guard")
    refused("loam.host { guard = 'x' }", "guard")
    refused("loam.host { huge = 'big' }", '"thp", "2MiB"')
    refused("loam.host { huge = true }", "huge = true")
    refused("loam.host { name = '' }", "name")
    refused("loam.host { name = ('x'):rep(64) }", "63 bytes")
    refused("loam.host { name = 'a\\nb' }", "control")
    refused("loam.host(5)", "table of options")
    refused("loam.host { limit = 4096LL }", "limit = a 64%-bit integer: must be")
    refused("loam.host { huge = 'THP' }", 'huge = "THP"', '^did you mean "thp"%?$')
  end)

  it("name nodes that exist", function()
    refused("loam.host { numa = 7 }", "node 7: this machine has nodes 0%-1")
    refused("loam.host { numa = { 0, 7 } }", "node 7")
    refused("loam.host { numa = { 0, 0 } }", "numa lists node 0 twice")
    refused("loam.host { numa = { prefer = 7 } }", "node 7")
    refused("loam.host { numa = { weights = { [7] = 1 } } }", "node 7")
    refused("loam.host { numa = { weights = { [0] = 0 } } }", "weight of node 0")
    refused("loam.host { numa = { weights = {} } }", "numa.weights")
    refused("loam.host { numa = 1.5 }", "whole number")
    refused("loam.host { numa = {} }", "numa")
    refused("loam.host { numa = 'near' }", 'numa = "near"')
    refused("loam.host { numa = 'near' }", 'a string of nodes as numactl')
    refused("loam.host { numa = 'locl' }", 'numa = "locl"', '^did you mean "local"%?$')
    refused("loam.host { numa = { perfer = 0 } }", "^numa has no 'perfer'$", "'prefer'")
    refused("loam.host { numa = { [0] = 1, [1] = 2 } }", "numa = a table: must be a list of nodes",
      "numa = {weights = {%[0%] = 3, %[1%] = 1}}")
    refused("loam.host { numa = '0-7' }", 'numa = "0%-7": node 7: this machine has nodes 0%-1')
    refused("loam.host { numa = { prefer = 'all' } }", "must name one node, and names 0, 1")
    refused("loam.host { numa = { prefer = 'near' } }", 'numa.prefer = "near": must be a node')
    refused("loam.host { numa = { prefer = '0-7' } }", "node 7")
    refused("loam.host { numa = { prefer = 0, weights = {} } }", "numa")
  end)

  it("are misspelt with a suggestion", function()
    refused("loam.host { alig = 64 }", 'no option "alig"', "align")
    refused("loam.host { 64 }", "no option 1")
    refused("loam.deny { align = 64 }", "loam.deny has no option", "limit, soft, shared, name")
  end)
end)

describe("the other kinds", function()
  it("are system, deny and handler", function()
    assert.equal("system", described("loam.system {}").kind)
    assert.equal("system", described("loam.system()").kind)
    assert.equal("deny", described("loam.deny { name = 'no' }").kind)
    local d = described('loam.handler "numpy"')
    assert.equal("handler", d.kind)
    assert.equal("numpy", d.handler)
    assert.equal(100, described('loam.handler { "numpy", limit = 100 }').limit)
    refused("loam.handler()", "name of a handler")
    for _, words in ipairs { "loam:host {}", "loam:deny()", "loam:device {}", "loam:policy {}",
                             "loam:handler 'numpy'", "loam:node(0)" } do
      local word = words:match("%a+", 6)
      refused(words, "^loam:" .. word .. " passes loam itself$", "a dot: loam." .. word)
    end
    refused("loam.handler {}", "name of a handler")
  end)

  it("that this machine cannot serve need a fallback", function()
    for _, constructor in ipairs { "loam.pinned { mapped = true, numa = 0 }",
                                   "loam.device { id = 'current', pool = 'cache' }",
                                   "loam.managed { prefer = 0 }" } do
      refused(constructor, "memory needs a GPU: there is no driver", "or_else")
      local d = described(constructor .. ":or_else(loam.host { name = 'instead' })")
      assert.equal("instead", d.name)
    end
    refused("loam.pinned { maped = true }", "no option", "mapped")
    refused("loam.device { pool = 'big' }", '"cache", "chunks", "driver", "none" or "sleep"$')
    refused("loam.device { pool = 'chache' }", 'pool = "chache"', '^did you mean "cache"%?$')
    refused("loam.device { id = -1 }", "device number")
    refused("loam.host { huge = '2MiB' }", "no 2MiB huge pages are reserved", "or_else")
    refused("loam.host { huge = '1GiB' }", "has no 1GiB huge pages")
    refused('loam.handler "nobody"', 'no handler "nobody"', "or_else")
  end)

  it("of devices reach core as it takes them, where there are devices", function()
    support.with_devices(2, function()
      local d = described("loam.device { id = 1, pool = 'driver', limit = 4096 }")
      assert.same({ "device", 2, 3, 4096, nil }, { d.kind, d.device, d.supply, d.limit, d.prefer })
      d = described("loam.device { id = 'current' }")
      assert.same({ 0, nil }, { d.device, d.supply })
      d = described("loam.managed { prefer = 1, id = 0 }")
      assert.same({ 1, 3 }, { d.device, d.prefer })
      assert.equal(1, described("loam.managed { prefer = 'current' }").prefer)
      d = described("loam.pinned { mapped = true, portable = true, write_combined = true, "
        .. "numa = 0 }")
      assert.same({ true, true, true, "bind" },
        { d.mapped, d.portable, d.write_combined, d.numa.mode })
      refused("loam.device { id = 2 }", "device 2: this machine has devices 0%-1", "or_else")
      refused("loam.device { id = 32 }", "device number from 0 to 31")
      assert.equal("instead",
        described("loam.device { id = 2 }:or_else(loam.host { name = 'instead' })").name)
      assert.equal("device(id=1)", described("loam.device { id = 1 }:or_else(loam.host {})").name)
      assert.equal("b", support.answers(
        "return #loam.devices() == 2 and loam.device(1).free > 10 and a or b",
        { { device_free = { [1] = 10 } } }))
    end)
  end)

  it("are shared memory and files", function()
    local d = described("loam.shared { align = 64, huge = 'thp', numa = 1, lock = true }")
    assert.same({ "shared", 64, "thp", true }, { d.kind, d.align, d.huge, d.lock })
    assert.equal("bind", d.numa.mode)
    d = described("loam.file { dir = '/spill', zero = true, limit = 4096 }")
    assert.same({ "file", "/spill", true, 4096 }, { d.kind, d.dir, d.zero, d.limit })
    refused("loam.shared { guard = true }", "no option \"guard\"")
    refused("loam.shared { huge = '2MiB' }", 'must be false or "thp" for shared memory')
    refused("loam.shared { dir = '/spill' }", "no option \"dir\"")
    refused("loam.file { dir = '/spill', numa = 0 }", "no option \"numa\"")
    refused("loam.file {}", "loam.file needs dir", "/var/tmp")
    refused("loam.file()", "loam.file needs dir")
    refused("loam.file { dir = 'spill' }", 'dir = "spill": must be the absolute path')
    refused("loam.file { dir = '' }", "absolute path")
    refused("loam.file { dir = 7 }", "absolute path")
    refused("loam.file { dir = '/' .. ('x'):rep(255) }", "at most 255 bytes")
    refused("loam.file { dir = '/a\\nb' }", "absolute path")
    refused("loam.file { dir = '/tmpfs' }", 'dir "/tmpfs": it is on tmpfs', "or_else")
    assert.equal("file", described("loam.file { dir = '/tmpfs' }:or_else(loam.host {})").kind)
  end)

  it("leave chains that can be told apart, though they are served alike", function()
    assert.equal("device,a a managed,a", support.answers(
      "if req.size < 10 then return x end return req.size < 20 and a or y", { 1, 10, 20 },
      "", "local x = loam.device {}:or_else(a) local y = loam.managed {}:or_else(a) "))
  end)

  it("stay in the chain where the machine may serve them later", function()
    assert.equal("2MiB", described("loam.host { huge = '2MiB' }:or_else(loam.host {})").huge)
    assert.equal("nobody", described("loam.handler 'nobody':or_else(loam.host {})").handler)
  end)
end)

describe("strategies", function()
  it("that are described alike are one", function()
    assert.equal("a", support.answers("return x == y and a or b", { 0 }, "",
      "local x = loam.host { align = 64 } local y = loam.host { align = 64 } "))
    assert.equal("b", support.answers("return x == y and a or b", { 0 }, "",
      "local x = loam.host { align = 64 } local y = loam.host { align = 128 } "))
  end)

  it("have a name from their options where none is given", function()
    assert.equal("host(align=64,huge=thp)",
      described("loam.host { huge = 'thp', align = 64 }").name)
    assert.equal("host", described("loam.host {}").name)
    assert.equal("host(numa={weights={[0]=3,[1]=1}})",
      described("loam.host { numa = { weights = { [0] = 3, [1] = 1 } } }").name)
  end)

  it("chain up to 16, whatever the order of joining", function()
    assert.equal("a,b,c", support.answers("return a:or_else(b:or_else(c))", { 0 }))
    assert.equal("a", support.answers(
      "return a:or_else(b:or_else(c)) == a:or_else(b):or_else(c) and a or b", { 0 }))
    local d = support.refusal("local s = a for i = 1, 16 do s = s:or_else(b) end return s")
    assert.matches("a chain of 17", d.reason)
    assert.matches("or_else takes a strategy", support.refusal("return a:or_else(nil)").reason)
    assert.equal(2, support.refusal("return a:or_else(nil)").line)
    assert.matches("takes one strategy", support.refusal("return a:or_else(b, c)").reason)
  end)

  it("cannot be changed", function()
    assert.equal("write", support.refusal("return a", "", "a.name = 'x' ").class)
  end)

  it("report what was declared", function()
    support.open("local s = loam.host { numa = { weights = { [0] = 3, [1] = 1 } }, huge = false } "
      .. "return loam.policy { pick = function(req) return s end }\n")
    local list = strategy.declared()
    local report = strategy.report(list[#list])
    assert.same({ weights = { ["0"] = 3, ["1"] = 1 } }, report.numa)
    assert.is_false(report.huge)
  end)

  it("report the nodes that a string stands for", function()
    local function reported(numa)
      support.open("local s = loam.host { numa = " .. numa .. ", name = 's' } "
        .. "return loam.policy { pick = function(req) return s end }\n")
      local list = strategy.declared()
      return strategy.report(list[#list]).numa
    end
    assert.same({ 0, 1 }, reported("'all'"))
    assert.equal(1, reported("'+1'"))
    assert.same({ prefer = 0 }, reported("{ prefer = '!1' }"))
    assert.same({ prefer = 1 }, reported("{ prefer = 1 }"))
    assert.equal("local", reported("'local'"))
  end)
end)

describe("the table loam", function()
  it("has the units and the machine", function()
    assert.equal("a", support.answers("return loam.MiB == 2^20 and loam.TiB == 2^40 and a or b",
      { 0 }))
    assert.equal("a",
      support.answers("return #loam.nodes() == 2 and loam.devices()[1] == nil and a or b",
      { 0 }))
  end)

  it("knows what a node has in all, and whether it has CPUs", function()
    assert.equal("a", support.answers("return loam.node(1).total == 2 ^ 38 and a or b", { 0 }))
    assert.equal("a b", support.answers(
      "return loam.node(0).free > 0.2 * loam.node(0).total and a or b",
      { { node_free = { [0] = 2 ^ 35 } }, { node_free = { [0] = 2 ^ 33 } } }))
    assert.equal("a",
      support.answers("return loam.node(0).cpus and not loam.node(1).cpus and a or b", { 0 }))
    local d = support.refusal("return loam.node(0).size > 1 and a or b")
    assert.matches("no field 'size'", d.reason)
  end)

  it("reads memory pressure, in percent", function()
    assert.equal("a b b", support.answers("return loam.pressure() < 10 and a or b",
      { { pressure = 9 }, { pressure = 10 }, { pressure = 100 } }))
    assert.equal("b", support.answers("return loam.pressure() > 0 and a or b", { 0 }))
    assert.matches("takes no argument", support.refusal("return loam.pressure(1) > 1 and a or b")
      .reason)
  end)

  it("checks the node and device of a gauge", function()
    assert.matches("node 9", support.refusal("return loam.node(9).free > 1 and a or b").reason)
    assert.matches("device 0: there is no device: there is no driver",
      support.refusal("return loam.device(0).free > 1 and a or b").reason)
    support.with_devices(2, function()
      assert.matches("device 2: this machine has devices 0%-1",
        support.refusal("return loam.device(2).free > 1 and a or b").reason)
    end)
    assert.matches("device number",
      support.refusal("return loam.device('x').free > 1 and a or b").reason)
  end)
end)

describe("a size in a test of a policy", function()
  it("is refused as text, with what to write", function()
    local d = support.refusal("return a", nil, nil, "tests = { { size = '4MB', expect = a } }")
    assert.equal("test 1: size = \"4MB\": must be a whole number from 0 to 2^47", d.reason)
    assert.equal("write 4 * loam.MiB", d.suggestion)
  end)
end)
