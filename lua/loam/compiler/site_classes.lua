-- site_classes.lua - classes of sites that a policy cannot tell apart, with a value for each class.
--
-- A trie of observations: each node holds a question, with an edge for each answer that was seen.
-- For any two sites the replays ask one first question; while the answers are equal, the next
-- questions are equal too. So a site whose answers lead to the end of the trie gets the value of
-- its class. It costs as many questions as the class has, whatever the number of tags.

local site_classes = {}

---@class loam.Classes
---@field root table|nil node: { observation, edges } or { value }; nil: nothing is stored yet
---@field grow nil|fun(node: table, answer: any): table makes the node behind an answer that was not
---  seen (class_graph.lua); nil: each class is stored with its questions

function site_classes.new()
  return {}
end

local function end_of(trie, where)
  local node = trie.root
  while node and node.observation do
    local answer = node.observation.ask(where)
    if not node.edges[answer] and trie.grow then node.edges[answer] = trie.grow(node, answer) end
    node = node.edges[answer]
  end
  return node
end

---@return any the value of the class of `where`; nil if the class is new
function site_classes.find(trie, where)
  local node = end_of(trie, where)
  return node and node.value
end

local function leaf_or_test(asked, at, value)
  if asked[at] then return { observation = asked[at], edges = {} } end
  return { value = value }
end

-- Stores `value` for the class of the site `where`, which gives the answers in `asked`
-- (observation, answer, ...).
function site_classes.store(trie, where, asked, value)
  if trie.grow then
    end_of(trie, where).value = value
    return
  end
  trie.root = trie.root or leaf_or_test(asked, 1, value)
  local node = trie.root
  for at = 1, #asked, 2 do
    local answer = asked[at + 1]
    node.edges[answer] = node.edges[answer] or leaf_or_test(asked, at + 2, value)
    node = node.edges[answer]
  end
  node.value = value
end

return site_classes
