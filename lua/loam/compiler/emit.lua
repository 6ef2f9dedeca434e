-- emit.lua - turns a graph of cells into the image that core reads (plan.h).

local core = require("loam.core")
local ffi = require("ffi")

local emit = {}

if core.cdef then ffi.cdef(core.cdef) end

local C = ffi.C
local CMP = { lt = C.LM_CMP_LT, le = C.LM_CMP_LE, eq = C.LM_CMP_EQ }
local OP = {
  add = C.LM_OP_ADD, sub = C.LM_OP_SUB, mul = C.LM_OP_MUL, div = C.LM_OP_DIV, mod = C.LM_OP_MOD,
  pow = C.LM_OP_POW, neg = C.LM_OP_NEG, floor = C.LM_OP_FLOOR, ceil = C.LM_OP_CEIL,
  abs = C.LM_OP_ABS, min = C.LM_OP_MIN, max = C.LM_OP_MAX,
}

-- Lists the cells so that every test stands before the cells that it leads to: the reverse of the
-- order in which a depth-first walk leaves them.
local function in_order(root)
  local left, seen = {}, {}
  local function walk(cell)
    if seen[cell] then return end
    seen[cell] = true
    if not cell.leaf then
      walk(cell.no)
      walk(cell.yes)
    end
    left[#left + 1] = cell
  end
  walk(root)
  local tests, leaves, index = {}, {}, {}
  for i = #left, 1, -1 do
    local cell = left[i]
    local list = cell.leaf and leaves or tests
    list[#list + 1] = cell
    index[cell] = cell.leaf and -#list or #list - 1 -- ~leaf: leaf number 0 is -1
  end
  return tests, leaves, index
end

-- Appends the postfix code of an expression to `code`, and its inputs to `reads`.
local function add_code(code, reads, e)
  if type(e) == "number" then
    code[#code + 1] = { op = C.LM_OP_CONST, k = e }
  elseif e.op == "input" then
    reads[e.input] = true
    code[#code + 1] = { op = C.LM_OP_INPUT, input = e.input, arg = e.arg }
  else
    add_code(code, reads, e.a)
    if e.b then add_code(code, reads, e.b) end
    code[#code + 1] = { op = OP[e.op] }
  end
end

local function node_of(cell, index, code, reads)
  local node = { yes = index[cell.yes], no = index[cell.no], line = cell.line or 0 }
  if cell.input then
    reads[cell.input.input] = true
    node.cmp, node.input, node.arg, node.k = C.LM_CMP_LT, cell.input.input, cell.input.arg, cell.k
    return node
  end
  node.cmp, node.code = CMP[cell.condition.cmp], #code
  add_code(code, reads, cell.condition.left)
  add_code(code, reads, cell.condition.right)
  node.code_n = #code - node.code
  return node
end

---@return string the bytes of an array of core's struct `ctype`
function emit.array(ctype, list)
  if #list == 0 then return "" end
  local data = ffi.new(ctype .. "[?]", #list, list)
  return ffi.string(data, ffi.sizeof(data))
end

---@class loam.Emitted
---@field image string
---@field leaves table[] leaves of the traced tree, by their index in the image, from 1
---@field reads table<integer, boolean> the LM_IN_* that the plan reads

---@param root loam.Cell
---@param ids fun(leaf): integer[] strategy ids of a leaf
---@return loam.Emitted
function emit.run(root, ids)
  local tests, leaf_cells, index = in_order(root)
  local nodes, code, leaves, chain, reads, found = {}, {}, {}, {}, {}, {}
  for i, cell in ipairs(tests) do nodes[i] = node_of(cell, index, code, reads) end
  for i, cell in ipairs(leaf_cells) do
    local list = ids(cell.leaf)
    leaves[i] = { first = #chain, n = #list, line = cell.leaf.line or 0 }
    for _, id in ipairs(list) do chain[#chain + 1] = id end
    found[i] = cell.leaf
  end
  local head = ffi.new("lm_image", {
    magic = C.LM_PLAN_MAGIC, nodes = #nodes, codes = #code, leaves = #leaves, chains = #chain,
  })
  local image = ffi.string(head, ffi.sizeof(head)) .. emit.array("lm_node", nodes)
    .. emit.array("lm_code", code) .. emit.array("lm_leaf", leaves) .. emit.array("uint32_t", chain)
  return { image = image, leaves = found, reads = reads }
end

return emit
