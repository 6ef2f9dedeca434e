-- lower.lua - turns a decision tree into a small graph: searches balanced, equal parts shared,
-- tests without effect left out.
--
-- A run of conditions on one input divides its range. It is taken apart into sorted segments and
-- put together again as a balanced search of thresholds (a ladder), so that a chain of a hundred
-- comparisons takes seven. Cells are interned: equal subgraphs are one cell, and a test with equal
-- sides is left out.

local numbers = require("loam.compiler.numbers")

local lower = {}

---@class loam.Cell a leaf { id, leaf } or a test { id, input, k, condition, yes, no, line }

-- Makes a graph without cells. Equal parts of all trees that are lowered into it are one cell.
function lower.graph()
  return { cells = {}, count = 0, number = numbers.new(), built = {} }
end

local function intern(graph, id, cell)
  if not graph.cells[id] then
    graph.count = graph.count + 1
    cell.id = graph.count
    graph.cells[id] = cell
  end
  return graph.cells[id]
end

local function test(graph, cell)
  if cell.yes == cell.no then return cell.yes end
  local subject = graph.number(cell.input or cell.condition)
  local id = string.format("%d %.17g %d %d", subject, cell.k or 0, cell.yes.id, cell.no.id)
  return intern(graph, id, cell)
end

local build

-- ---- ladders

local divide

local function is_test_of(node, input)
  return node.condition and node.condition.input == input
end

-- Returns the nodes for which `input cmp k` is true and false; `negated` swaps yes and no.
local function sides(node)
  if node.condition.negated then return node.no, node.yes end
  return node.yes, node.no
end

local function add_segment(out, high, cell)
  local last = out[#out]
  if last and last.cell == cell then
    last.high = high
  else
    out[#out + 1] = { high = high, cell = cell }
  end
end

-- Takes a chain of equalities apart, such as an index into a table makes. Returns its values from
-- low to high, sorted; the node of each value; and the node for which no equality holds.
local function equalities(node, input, low, high, lines)
  local found, values = {}, {}
  while is_test_of(node, input) and node.condition.cmp == "eq" do
    local k = node.condition.k
    local yes, no = sides(node)
    lines[k], lines[k + 1] = lines[k] or node.line, lines[k + 1] or node.line
    if k >= low and k <= high and not found[k] then
      found[k] = yes
      values[#values + 1] = k
    end
    node = no
  end
  table.sort(values)
  return values, found, node
end

local function divide_equalities(graph, node, input, low, high, out, lines)
  local values, found, rest = equalities(node, input, low, high, lines)
  for _, k in ipairs(values) do
    if low < k then divide(graph, rest, input, low, k - 1, out, lines) end
    divide(graph, found[k], input, k, k, out, lines)
    low = k + 1
  end
  if low <= high then divide(graph, rest, input, low, high, out, lines) end
end

-- Adds the segments of `node` between `low` and `high` to `out`, and the line of each threshold to
-- `lines`.
function divide(graph, node, input, low, high, out, lines)
  if not is_test_of(node, input) then return add_segment(out, high, build(graph, node)) end
  if node.condition.cmp == "eq" then
    return divide_equalities(graph, node, input, low, high, out, lines)
  end
  local k = node.condition.k
  local below, above = sides(node)
  lines[k] = lines[k] or node.line
  if low < k then divide(graph, below, input, low, math.min(high, k - 1), out, lines) end
  if high >= k then divide(graph, above, input, math.max(low, k), high, out, lines) end
end

local function balance(graph, input, segments, lines, first, last)
  if first == last then return segments[first].cell end
  local middle = math.floor((first + last) / 2)
  local k = segments[middle].high + 1
  return test(graph, {
    input = input, k = k, line = lines[k],
    yes = balance(graph, input, segments, lines, first, middle),
    no = balance(graph, input, segments, lines, middle + 1, last),
  })
end

local function ladder(graph, node)
  local input, segments, lines = node.condition.input, {}, {}
  divide(graph, node, input, input.least, input.most, segments, lines)
  return balance(graph, input, segments, lines, 1, #segments)
end

-- ---- the graph

local function cell_of(graph, node)
  if not node.condition then return intern(graph, "leaf " .. node.key, { leaf = node }) end
  if not node.condition.complex then return ladder(graph, node) end
  return test(graph, {
    condition = node.condition, line = node.line,
    yes = build(graph, node.yes), no = build(graph, node.no),
  })
end

-- A node may be reached by several segments; it is built once.
function build(graph, node)
  local cell = graph.built[node] or cell_of(graph, node)
  graph.built[node] = cell
  return cell
end

-- Lowers a tree of trace.explore into `graph`; nil: into a graph of its own. Leaves with equal
-- `key` become one.
---@return loam.Cell root
function lower.run(tree, graph)
  return build(graph or lower.graph(), tree)
end

return lower
