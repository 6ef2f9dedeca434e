-- core_stub.lua - a stand-in in plain Lua for the module `loam.core`, which core gives to the Lua
-- state of a policy. It evaluates images by the layout in plan.h with its own code, and so it
-- checks emit.lua.

local ffi = require("ffi")

local core = {}

local function read_header(name)
  local top = debug.getinfo(1, "S").source:match("^@(.*)tests/lua/[^/]*$") or ""
  local pipe = assert(io.popen("cc -E -P -DLOAM_CDEF " .. top .. "core/plan/" .. name))
  local text = pipe:read("*a")
  pipe:close()
  return text
end

if not pcall(ffi.typeof, "lm_image") then
  ffi.cdef(read_header("plan.h"))
  ffi.cdef(read_header("class_tree.h"))
end

core.limits = { max_leaves = 1000, step_ms = 200, step_bytes = 4 * 2 ^ 20 }
core.host = false

core.the_machine = {
  nodes = { 0, 1 }, totals = { [0] = 2 ^ 36, [1] = 2 ^ 38 },
  cpus = { [0] = true, [1] = false }, hugepages = { ["2MiB"] = 0 }, thp = "madvise",
  page = 4096, memlock = 8 * 2 ^ 20,
}

function core.machine() return core.the_machine end
core.pages_of_node = { [0] = {}, [1] = {} }
function core.huge_pages(node) return core.pages_of_node[node] end
function core.absent_node() return "this machine has nodes 0-1" end

-- Strings of nodes that libnuma accepts on a machine with nodes 0 and 1, and one that it refuses.
core.node_strings = { ["0-1"] = { 0, 1 }, ["!1"] = { 0 }, ["+1"] = { 1 }, all = { 0, 1 } }
core.absent_strings = { ["0-7"] = "node 7: this machine has nodes 0-1" }
function core.parse_nodes(text)
  if core.node_strings[text] then return core.node_strings[text] end
  return nil, core.absent_strings[text] or "nodes are written as 0-3, 0,2, !1, +0 or all",
    not core.absent_strings[text]
end
core.the_free = {}
function core.free() return core.the_free end
core.the_refused = {}
function core.refused() return core.the_refused end
core.has_stalls = true
function core.counts_stalls() return core.has_stalls end

core.device_count, core.no_device = 0, "there is no driver"
function core.devices() return core.device_count, core.no_device end
core.folders = { ["/tmpfs"] = "it is on tmpfs, which is memory itself" }
function core.folder(path) return core.folders[path] end

function core.hash() return "00c0ffee00c0ffee" end

core.handlers = { numpy = true }
function core.handler(name) return core.handlers[name] or false end

-- ---- strategies

local ids, descriptions = {}, {}

local function flat(value)
  if type(value) ~= "table" then return tostring(value) end
  local parts = {}
  for k, v in next, value do parts[#parts + 1] = tostring(k) .. "=" .. flat(v) end
  table.sort(parts)
  return "{" .. table.concat(parts, ",") .. "}"
end

function core.strategy(description)
  local id = flat(description)
  if not ids[id] then
    descriptions[#descriptions + 1] = description
    ids[id] = #descriptions
  end
  return ids[id]
end

function core.description(id) return descriptions[id] end

-- ---- plans

local by_image = {}

-- Forgets all plans: a new Lua state has none.
function core.forget() by_image = {} end

local function array(ctype, text, at, n)
  local data = ffi.new(ctype .. "[?]", math.max(n, 1))
  ffi.copy(data, text:sub(at + 1, at + n * ffi.sizeof(ctype)), n * ffi.sizeof(ctype))
  return data, at + n * ffi.sizeof(ctype)
end

local function check_target(to, from, plan)
  if to < 0 then
    assert(-to <= plan.leaves, "leaf out of range")
  else
    assert(to > from and to < plan.nodes, "node out of range or not above its parent")
  end
end

-- Checks the depth of the stack after each instruction; two values must be left at the end.
local function check_code(node, plan)
  assert(node.code + node.code_n <= plan.codes, "code out of range")
  local depth = 0
  for i = node.code, node.code + node.code_n - 1 do
    local op = plan.code[i].op
    if op == ffi.C.LM_OP_CONST or op == ffi.C.LM_OP_INPUT then
      depth = depth + 1
    elseif op >= ffi.C.LM_OP_ADD and op <= ffi.C.LM_OP_POW or op >= ffi.C.LM_OP_MIN then
      depth = depth - 1
    end
    assert(depth >= 1 and depth <= ffi.C.LM_STACK, "stack depth " .. depth)
  end
  assert(node.code_n == 0 or depth == 2, "code leaves " .. depth .. " values")
end

local function check(plan)
  assert(plan.leaves >= 1, "no leaf")
  for i = 0, plan.nodes - 1 do
    check_target(plan.node[i].yes, i, plan)
    check_target(plan.node[i].no, i, plan)
    check_code(plan.node[i], plan)
  end
  for i = 0, plan.leaves - 1 do
    local leaf = plan.leaf[i]
    assert(leaf.n >= 1 and leaf.n <= ffi.C.LM_CHAIN_MAX, "chain length")
    assert(leaf.first + leaf.n <= plan.chains, "chain out of range")
  end
end

function core.plan(image)
  if by_image[image] then return by_image[image] end
  local head = array("lm_image", image, 0, 1)[0]
  assert(head.magic == ffi.C.LM_PLAN_MAGIC, "magic")
  local at = ffi.sizeof("lm_image")
  local plan = {
    nodes = head.nodes, codes = head.codes, leaves = head.leaves, chains = head.chains,
  }
  plan.node, at = array("lm_node", image, at, plan.nodes)
  plan.code, at = array("lm_code", image, at, plan.codes)
  plan.leaf, at = array("lm_leaf", image, at, plan.leaves)
  plan.chain, at = array("uint32_t", image, at, plan.chains)
  assert(at == #image, "length of the image")
  local ok, message = pcall(check, plan)
  if not ok then return nil, message end
  by_image[image] = plan
  return plan
end

-- ---- deciding

local NAMES = {
  [0] = "size", "align", "zero", "node", "device", "live", "node_free", "device_free", "line",
  "pressure",
}
local DEFAULT = { size = 0, align = 16, zero = 0, node = 0, device = -1, live = 0, line = 0,
                  pressure = 0 }

local function read(input, arg, req)
  local name = NAMES[input]
  local value = req[name]
  if input == 6 or input == 7 then return value and value[arg] or 0 end
  if name == "zero" then return value and 1 or 0 end
  return value or DEFAULT[name]
end

local BINARY = {
  [ffi.C.LM_OP_ADD] = function(a, b) return a + b end,
  [ffi.C.LM_OP_SUB] = function(a, b) return a - b end,
  [ffi.C.LM_OP_MUL] = function(a, b) return a * b end,
  [ffi.C.LM_OP_DIV] = function(a, b) return a / b end,
  [ffi.C.LM_OP_MOD] = function(a, b) return a % b end,
  [ffi.C.LM_OP_POW] = function(a, b) return a ^ b end,
  [ffi.C.LM_OP_MIN] = math.min,
  [ffi.C.LM_OP_MAX] = math.max,
}
local UNARY = {
  [ffi.C.LM_OP_NEG] = function(a) return -a end,
  [ffi.C.LM_OP_FLOOR] = math.floor, [ffi.C.LM_OP_CEIL] = math.ceil, [ffi.C.LM_OP_ABS] = math.abs,
}

local function run(plan, node, req)
  local stack = {}
  for i = node.code, node.code + node.code_n - 1 do
    local code = plan.code[i]
    if code.op == ffi.C.LM_OP_CONST then
      stack[#stack + 1] = code.k
    elseif code.op == ffi.C.LM_OP_INPUT then
      stack[#stack + 1] = read(code.input, code.arg, req)
    elseif UNARY[code.op] then
      stack[#stack] = UNARY[code.op](stack[#stack])
    else
      local b = table.remove(stack)
      stack[#stack] = BINARY[code.op](stack[#stack], b)
    end
  end
  return stack[1], stack[2]
end

local COMPARE = {
  [0] = function(a, b) return a < b end,
  function(a, b) return a <= b end,
  function(a, b) return a == b end,
}

function core.decide(plan, req)
  if plan.nodes == 0 then return 0 end
  local at = 0
  repeat
    local node = plan.node[at]
    local left, right
    if node.code_n > 0 then
      left, right = run(plan, node, req)
    else
      left, right = read(node.input, node.arg, req), node.k
    end
    at = COMPARE[node.cmp](left, right) and node.yes or node.no
  until at < 0
  return -at - 1
end

-- ---- class trees

local tag = require("loam.symbolic.tag")

local FIELDS = { [0] = "tag", "file", "func", "module" }
local ASKED = { [ffi.C.LM_ASK_IS] = "is", [ffi.C.LM_ASK_UNDER] = "under",
                [ffi.C.LM_ASK_GLOB] = "glob" }

local function key_of(tree, node, text)
  for i = node.text, node.text + node.length - 1 do
    local key = tree.key[i]
    if tree.strings:sub(key.text + 1, key.text + key.length) == text then return key.next end
  end
  return node.no
end

local function next_of(tree, node, where)
  local text = where[FIELDS[node.field]] or ""
  if node.ask == ffi.C.LM_ASK_PART then
    return tag.part(text, node.part) and node.yes or node.no
  end
  if node.part > 0 then text = tag.part(text, node.part) end
  if not text then return node.no end
  if node.ask == ffi.C.LM_ASK_KEY then return key_of(tree, node, text) end
  local literal = tree.strings:sub(node.text + 1, node.text + node.length)
  return tag[ASKED[node.ask]](text, literal) and node.yes or node.no
end

-- Reads the bytes of a class tree. Returns the tree, and a function(where) that returns the index
-- of a site's plan, from 1.
function core.class_tree(bytes)
  local head = array("lm_class_head", bytes, 0, 1)[0]
  assert(head.magic == ffi.C.LM_CLASS_MAGIC, "magic")
  local tree, at = { nodes = head.nodes, plans = head.plans }, ffi.sizeof("lm_class_head")
  tree.node, at = array("lm_class_node", bytes, at, head.nodes)
  tree.key, at = array("lm_class_key", bytes, at, head.keys)
  tree.strings = bytes:sub(at + 1)
  assert(#tree.strings == head.strings, "length of the tree")
  return tree, function(where)
    local place = tree.nodes > 0 and 0 or -1
    while place >= 0 do
      local to = next_of(tree, tree.node[place], where)
      assert(to > place or to < 0 and -to <= tree.plans, "a node leads to " .. to)
      place = to
    end
    return -place
  end
end

-- ---- steps and answers

core.steps = {}
function core.step(what) core.steps[#core.steps + 1] = what end

core.written = {}
function core.write(text) core.written[#core.written + 1] = text end

return core
