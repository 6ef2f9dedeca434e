-- all_classes.lua - finds a site of every class of sites that a policy tells apart.
--
-- The trie of site_classes.lua holds the questions that the replays have asked so far, with the
-- answers that were seen. For an answer that was not seen, automaton.lua finds a site that gives
-- it, or shows that there is none. The policy is compiled for that site, which may ask new
-- questions.
-- This ends when every answer in the trie has a class or is impossible: then every site that will
-- ever come has its class. (The method is that of concolic testing: Godefroid, Klarlund and Sen,
-- DART, 2005.)

local automaton = require("loam.compiler.automaton")
local budget = require("loam.compiler.budget")

local all_classes = {}

local LONGEST = { tag = 255, file = 4095, func = 4095, module = 4095 } -- bytes

-- Lists the answers that a question can have, "no" last.
---@param observation loam.Observation
local function answers_of(observation)
  if observation.how ~= "key" then return { true, false } end
  local list = {}
  for _, word in ipairs(observation.about.words) do
    if observation.about.first[word] == word then list[#list + 1] = word end
  end
  list[#list + 1] = false
  return list
end

-- Returns a look-up in a table as a question about the keys with one value alone, whose automaton
-- is much smaller.
local function narrowed(observation, answer)
  local about = { words = {}, first = {} }
  for _, word in ipairs(observation.about.words) do
    if observation.about.first[word] == answer then
      about.words[#about.words + 1], about.first[word] = word, answer
    end
  end
  return { how = "key", part = observation.part, about = about }
end

local automata = setmetatable({}, { __mode = "k" }) -- observation -> answer -> automaton

-- Returns an automaton that gives this answer for a string if and only if the observation does.
local function automaton_of(observation, answer)
  local made = automata[observation] or {}
  automata[observation] = made
  local is_key = observation.how == "key" and answer ~= false
  local id = is_key and answer or false
  made[id] = made[id] or automaton.of(is_key and narrowed(observation, answer) or observation)
  return made[id]
end

-- Returns whether the last of the wanted answers excludes another one. Most answers that no string
-- gives are found so, in a small part of the time of a whole search.
local function is_excluded(wanted, longest)
  local last = wanted[#wanted]
  for i = 1, #wanted - 1 do
    if wanted[i][2] ~= false and not automaton.search({ wanted[i], last }, longest) then
      return true
    end
  end
  return false
end

-- Finds a string for one field that gives the answers of `path`, a list of { observation, answer }.
local function search(path, field)
  local wanted, longest = {}, LONGEST[field]
  for _, step in ipairs(path) do
    local observation, answer = step[1], step[2]
    if observation.field == field then
      wanted[#wanted + 1] = { automaton_of(observation, answer), answer }
    end
  end
  if #wanted > 2 and is_excluded(wanted, longest) then return nil end
  return automaton.search(wanted, longest)
end

-- Returns a site that gives the answers of `path`, where `site` gives all of them but perhaps the
-- last; nil if there is none. Each question is about one field, so the other fields stay.
local function site_on(path, site)
  local observation, answer = path[#path][1], path[#path][2]
  if observation.ask(site) == answer then return site end
  local found = search(path, observation.field)
  if not found then return nil end
  local where = { tag = site.tag, file = site.file, func = site.func, module = site.module }
  where[observation.field] = found
  return where
end

-- Calls `compile(where)` for a site of each class that the trie does not have yet. `compile` adds
-- the class to the trie, and returns false to end the search.
---@param trie table of site_classes.lua
function all_classes.find(trie, compile)
  local path = {}
  local function walk(node, site)
    local observation = node.observation
    if not observation then return true end
    for _, answer in ipairs(answers_of(observation)) do
      path[#path + 1] = { observation, answer }
      budget.step("finding the tags that pick tells apart")
      local where = site_on(path, site)
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
