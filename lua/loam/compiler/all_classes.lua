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

local FIRST = { tag = "", file = "", func = "", module = "" }

-- Calls `compile(where)` for a site of each class that the trie does not have yet. `compile` adds
-- the class to the trie, and returns false to end the search.
---@param trie loam.Classes
function all_classes.find(trie, compile)
  local path, searches = {}, 0
  local walk

  -- Goes on behind an answer. Returns whether the search goes on; and whether a site gives the
  -- answer, and every answer behind it.
  local function follow(node, answer, site)
    searches = searches + 1
    budget.step("finding the tags that pick tells apart, search " .. searches)
    local where = site_search.on(path, site)
    if not where then return true, false end
    if not node.edges[answer] and not compile(where) then return false end
    return walk(node.edges[answer], where), node.edges[answer].is_whole
  end

  -- A node that several ways lead to is looked at again only if some answer is missing there.
  function walk(node, site)
    local observation, is_whole = node.observation, true
    if node.is_whole then return true end
    if not observation and not node.value and not compile(site) then return false end
    for _, answer in ipairs(observation and site_search.answers(observation) or {}) do
      path[#path + 1] = { observation, answer }
      local goes_on, has_all = follow(node, answer, site)
      if not goes_on then return false end
      is_whole = is_whole and has_all
      path[#path] = nil
    end
    node.is_whole = is_whole
    return true
  end

  return compile(FIRST) and walk(trie.root, FIRST)
end

-- ---- an early refusal

local MOST_CLASSES = 4096

-- Adds to `path` an answer of a question, drawn by the number `drawn`, that some site gives.
-- Returns that site, for a `site` that gives the answers of the path before. With `counts`, returns
-- also how many answers are possible, where that is known to be 2, else 1.
function all_classes.draw(path, observation, site, drawn, counts)
  local answers, found, possible, at = site_search.answers(observation), nil, 0, nil
  for i = 1, #answers do
    path[#path + 1] = { observation, answers[(drawn + i) % #answers + 1] }
    local where = site_search.on(path, site)
    path[#path] = nil
    if where then possible = possible + 1 end
    if where and not found then found, at = where, (drawn + i) % #answers + 1 end
    if found and not (counts and #answers == 2) then break end
  end
  path[#path + 1] = { observation, answers[at] }
  return found, possible
end

local seed = 1

-- Walks to a class by random answers. Returns the last node, and a number: on the average of all
-- walks it is at most the number of ways to a class.
local function walk_at_random(trie, compile)
  local node, site, path, ways = trie.root, FIRST, {}, 1
  while node.observation do
    budget.step("counting the tags that pick tells apart, question " .. #path + 1)
    seed = seed * 16807 % 2147483647
    local possible
    site, possible = all_classes.draw(path, node.observation, site, math.floor(seed / 1024),
      not trie.grow)
    ways = ways * possible
    local answer = path[#path][2]
    if not node.edges[answer] and trie.grow then node.edges[answer] = trie.grow(node, answer) end
    if not node.edges[answer] then compile(site) end
    node = node.edges[answer]
  end
  return node, ways
end

-- By the birthday problem: if 340 random walks reach 340 different classes, there are more than
-- 4096; that is wrong one time in a million.
local function are_different(trie, compile)
  local reached = {}
  for _ = 1, 340 do
    local node = walk_at_random(trie, compile)
    if reached[node] then return false end
    reached[node] = true
  end
  return true
end

-- By Knuth's estimate of the size of a tree: a walk finds 16 times as many ways as there are one
-- time in 16 at most. So if 8 of 16 walks find 16 * 4096, there are more than 4096; that is wrong
-- three times in a million.
local function have_many_ways(trie, compile)
  local many = 0
  for _ = 1, 16 do
    local _, ways = walk_at_random(trie, compile)
    if ways >= 16 * MOST_CLASSES then many = many + 1 end
  end
  return many >= 8
end

-- Returns whether a policy has far more than 4096 classes, with certainty enough to refuse it
-- without compiling them. In a trie that grows by itself, several ways may lead to one class; for
-- another trie each walk compiles some classes. Calls compile(where) as all_classes.find does.
---@param trie loam.Classes with a root
function all_classes.are_far_too_many(trie, compile)
  seed = 1
  return (trie.grow and are_different or have_many_ways)(trie, compile)
end

return all_classes
