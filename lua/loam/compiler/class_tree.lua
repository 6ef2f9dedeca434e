-- class_tree.lua - writes the trie of all classes as the tree of questions that core walks
-- (class_tree.h).
--
-- Equal subtrees are one node. A question with one possible answer, or whose answers lead to one
-- plan, is left out.

local emit = require("loam.compiler.emit") -- declares core's structs
local ffi = require("ffi")
local numbers = require("loam.compiler.numbers")

local class_tree = {}

local C = ffi.C
local FIELD = { tag = C.LM_FIELD_TAG, file = C.LM_FIELD_FILE, func = C.LM_FIELD_FUNC,
                module = C.LM_FIELD_MODULE }
local ASK = { is = C.LM_ASK_IS, under = C.LM_ASK_UNDER, glob = C.LM_ASK_GLOB,
              part = C.LM_ASK_PART, key = C.LM_ASK_KEY }

---@class loam.ClassCell a plan { plan = its index from 0 } or a question { observation, answers,
--- yes, no }; answers: of "key", by the key that stands for its value

-- ---- the graph: cells from the leaves up

local function new_graph()
  return { plans = {}, index = {}, leaves = {}, cells = {}, built = {}, number = numbers.new() }
end

local function plan_cell(graph, plan)
  local index = graph.index[plan]
  if not index then
    index = #graph.plans
    graph.plans[index + 1], graph.index[plan] = plan, index
    graph.leaves[index] = { plan = index }
  end
  return graph.leaves[index]
end

-- Returns the cell of a question with these cells by answer; the only cell, if there is one alone.
local function question_cell(graph, observation, answers)
  local names, only, differ = {}, nil, false
  for answer, cell in pairs(answers) do
    names[#names + 1] = graph.number(answer) .. "=" .. graph.number(cell)
    only, differ = only or cell, differ or (only and only ~= cell)
  end
  if not differ then return only end
  table.sort(names)
  local id = graph.number(observation) .. "?" .. table.concat(names, ",")
  graph.cells[id] = graph.cells[id] or { observation = observation, answers = answers }
  return graph.cells[id]
end

-- Lists the answers of a question in an order that is equal in every process, so that equal texts
-- have equal images.
local function sorted(answers)
  local list = {}
  for answer in pairs(answers) do list[#list + 1] = answer end
  table.sort(list, function(a, b)
    if type(a) ~= type(b) then return type(a) < type(b) end
    return tostring(a) < tostring(b)
  end)
  return list
end

-- Returns the node behind the only possible answer of a question; nil: several answers are
-- possible. A policy with many rules has mostly such questions: a tag under one tag is under no
-- other.
local function only_child(node)
  local answer, child = next(node.edges)
  if next(node.edges, answer) == nil then return child end
end

local function build(graph, node)
  local child = node.observation and only_child(node)
  while child do
    node = child
    child = node.observation and only_child(node)
  end
  if not node.observation then return plan_cell(graph, node.value.plan) end
  if not graph.built[node] then -- in a class graph several ways lead to a node
    local answers = {}
    for _, answer in ipairs(sorted(node.edges)) do
      answers[answer] = build(graph, node.edges[answer])
    end
    graph.built[node] = question_cell(graph, node.observation, answers)
  end
  return graph.built[node]
end

-- ---- order: every question before the cells that it leads to

local function each_child(cell, visit)
  if cell.plan then return end
  for _, answer in ipairs(cell.order) do visit(cell.answers[answer]) end
end

local function in_order(root)
  local left, seen = {}, {}
  local function walk(cell)
    if seen[cell] or cell.plan then return end
    seen[cell] = true
    cell.order = sorted(cell.answers)
    each_child(cell, walk)
    left[#left + 1] = cell
  end
  walk(root)
  local list = {}
  for i = #left, 1, -1 do
    list[#list + 1] = left[i]
    left[i].place = #list - 1
  end
  return list
end

-- ---- the bytes

local function target(cell) return cell.plan and -cell.plan - 1 or cell.place end

-- Collects strings; equal ones are stored once.
local function new_strings() return { parts = {}, size = 0, at = {} } end

local function store(strings, text)
  if not strings.at[text] then
    strings.at[text] = strings.size
    strings.parts[#strings.parts + 1] = text
    strings.size = strings.size + #text
  end
  return strings.at[text]
end

-- Appends the keys of a question that lead elsewhere than `no`. Returns the index before the first
-- of these keys, and their number. Every other string goes to `no`. A key longer than core takes is
-- left out: a string of a site has at most 4095 bytes (site_search.lua).
local function add_keys(keys, strings, cell, no)
  local first, about = #keys, cell.observation.about
  for _, word in ipairs(about.words) do
    local to = cell.answers[about.first[word]]
    if to and to ~= no and #word <= C.LM_CLASS_TEXT_MAX then
      keys[#keys + 1] = { text = store(strings, word), length = #word, next = target(to) }
    end
  end
  return first, #keys - first
end

local function node_of(cell, keys, strings)
  local observation, answers = cell.observation, cell.answers
  local node = { ask = ASK[observation.how], field = FIELD[observation.field],
                 part = observation.part or 0 }
  if observation.how == "key" then
    local no = answers[false] or answers[cell.order[1]]
    node.text, node.length = add_keys(keys, strings, cell, no)
    node.yes, node.no = 0, target(no)
    return node
  end
  node.yes, node.no = target(answers[true]), target(answers[false])
  if observation.how == "part" then
    node.part = observation.about
  else
    node.text, node.length = store(strings, observation.about), #observation.about
  end
  return node
end

-- Writes the tree of a trie whose classes all have plans.
---@return string, any[] the bytes, and the plans by their index in the tree, from 1
function class_tree.run(trie)
  local graph = new_graph()
  local root = build(graph, trie.root)
  local nodes, keys, strings = {}, {}, new_strings()
  for i, cell in ipairs(in_order(root)) do nodes[i] = node_of(cell, keys, strings) end
  local head = ffi.new("lm_class_head", {
    magic = C.LM_CLASS_MAGIC, nodes = #nodes, keys = #keys, plans = #graph.plans,
    strings = strings.size,
  })
  return ffi.string(head, ffi.sizeof(head)) .. emit.array("lm_class_node", nodes)
    .. emit.array("lm_class_key", keys) .. table.concat(strings.parts), graph.plans
end

return class_tree
