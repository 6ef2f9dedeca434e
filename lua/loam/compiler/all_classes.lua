-- all_classes.lua - finds a site of every class of sites that a policy tells apart.
--
-- The trie of site_classes.lua holds the questions that the replays have asked so far, with the
-- answers that were seen. For an answer that was not seen, site_search.lua finds a site that gives
-- it, or shows that there is none. The policy is compiled for that site, which may ask new
-- questions.
-- This ends when every answer in the trie has a class or is impossible: then every site that will
-- ever come has its class. (The method is that of concolic testing: Godefroid, Klarlund and Sen,
-- DART, 2005.)

local budget = require("loam.compiler.budget")
local site_search = require("loam.compiler.site_search")

local all_classes = {}

-- Calls `compile(where)` for a site of each class that the trie does not have yet. `compile` adds
-- the class to the trie, and returns false to end the search.
---@param trie table of site_classes.lua
function all_classes.find(trie, compile)
  local path = {}
  local function walk(node, site)
    local observation = node.observation
    if not observation then return true end
    for _, answer in ipairs(site_search.answers(observation)) do
      path[#path + 1] = { observation, answer }
      budget.step("finding the tags that pick tells apart")
      local where = site_search.on(path, site)
      if where then
        if not node.edges[answer] and not compile(where) then return false end
        if not walk(node.edges[answer], where) then return false end
      end
      path[#path] = nil
    end
    return true
  end
  local first = { tag = "", file = "", func = "", module = "" }
  if not trie.root and not compile(first) then return false end
  return walk(trie.root, first)
end

return all_classes
