-- class_graph.lua - the classes of sites that the graph of all paths tells apart.
--
-- What a path graph decides is left to decide after each answer of a question: the rest. Rests with
-- equal graphs are one class, so a question that makes no difference is not asked. A rest without a
-- question is one class of sites, with one plan.

local numbers = require("loam.compiler.numbers")

local class_graph = {}

---@class loam.Rest { condition, yes, no } or { leaf }; equal rests are one table

local function new_graph() return { rests = {}, number = numbers.new(), nodes = {} } end

local function leaf_of(graph, key)
  local id = "leaf " .. key
  graph.rests[id] = graph.rests[id] or { leaf = key }
  return graph.rests[id]
end

local function rest_of(graph, condition, yes, no)
  if yes == no then return yes end
  local number = graph.number
  local id = number(condition) .. " " .. number(yes) .. " " .. number(no)
  graph.rests[id] = graph.rests[id] or { condition = condition, yes = yes, no = no }
  return graph.rests[id]
end

-- Returns the rest that a node of a path graph stands for.
local function reduced(graph, node, made)
  while node.met do node = node.met end
  if node.leaf then return leaf_of(graph, node.leaf) end
  made[node] = made[node] or rest_of(graph, node.condition, reduced(graph, node.yes, made),
    reduced(graph, node.no, made))
  return made[node]
end

-- Returns the rest that follows from a rest when a question has got its answer.
local function after(graph, rest, observation, answer, made)
  if rest.leaf then return rest end
  local c = rest.condition
  if not made[rest] and c.observation == observation then
    made[rest] = after(graph, c.answer == answer and rest.yes or rest.no, observation, answer, made)
  end
  made[rest] = made[rest] or rest_of(graph, c, after(graph, rest.yes, observation, answer, made),
    after(graph, rest.no, observation, answer, made))
  return made[rest]
end

-- Returns the first question of a rest; false if it has none.
local function question_of(rest)
  if rest.question == nil then
    local c = rest.condition
    rest.question = c and (c.observation or question_of(rest.yes) or question_of(rest.no)) or false
  end
  return rest.question
end

-- Returns the node of site_classes.lua for a rest.
local function node_of(graph, rest)
  graph.nodes[rest] = graph.nodes[rest]
    or { observation = question_of(rest) or nil, edges = {}, rest = rest }
  return graph.nodes[rest]
end

-- Makes a trie of site_classes.lua that grows by itself. Different nodes may lead to one node.
---@param root loam.PathNode of path_graph.lua
function class_graph.run(root)
  local graph = new_graph()
  return {
    root = node_of(graph, reduced(graph, root, {})),
    grow = function(node, answer)
      return node_of(graph, after(graph, node.rest, node.observation, answer, {}))
    end,
  }
end

return class_graph
