-- classes - sites that a policy cannot tell apart, and what was made for them.
--
-- A trie of observations: at each node one question, an edge for each answer seen. The replays of
-- two sites ask the same first question; with the same answer they ask the same second one, and so
-- on. A site whose answers lead to the end of the trie gets what the first of its class got, at the
-- cost of its few questions, whatever the number of tags.

local classes = {}

function classes.new()
  return {}
end

---@return any what was stored for the class of `where`, nil if it is a new one
function classes.find(trie, where)
  local node = trie.root
  while node and node.observation do
    node = node.edges[node.observation.ask(where)]
  end
  return node and node.value
end

local function leaf_or_test(asked, at, value)
  if asked[at] then return { observation = asked[at], edges = {} } end
  return { value = value }
end

-- Stores `value` for sites that give the answers in `asked` (observation, answer, ...).
function classes.store(trie, asked, value)
  trie.root = trie.root or leaf_or_test(asked, 1, value)
  local node = trie.root
  for at = 1, #asked, 2 do
    local answer = asked[at + 1]
    node.edges[answer] = node.edges[answer] or leaf_or_test(asked, at + 2, value)
    node = node.edges[answer]
  end
  node.value = value
end

return classes
