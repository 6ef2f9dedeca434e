-- site_search.lua - finds a site that gives chosen answers to questions of a policy.
--
-- Each question is about one string of the site, so the strings are searched one by one
-- (automaton.lua). This module needs neither a policy nor core: the command uses it too.

local automaton = require("loam.compiler.automaton")

local site_search = {}

local LONGEST = { tag = 255, file = 4095, func = 4095, module = 4095 } -- bytes

-- Lists the answers that a question can have, "no" last.
---@param observation loam.Observation
function site_search.answers(observation)
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

-- Returns the answers of `path` that are about one field, as pairs { automaton, answer }.
local function wanted_of(path, field)
  local wanted = {}
  for _, step in ipairs(path) do
    local observation, answer = step[1], step[2]
    if observation.field == field then
      wanted[#wanted + 1] = { automaton_of(observation, answer), answer }
    end
  end
  return wanted
end

-- Finds a string for one field that gives the answers of `path`, a list of { observation, answer }.
local function search(path, field)
  local wanted, longest = wanted_of(path, field), LONGEST[field]
  if #wanted > 2 and is_excluded(wanted, longest) then return nil end
  return automaton.search(wanted, longest)
end

-- Returns a site that gives the answers of `path`, where `site` gives all of them but perhaps the
-- last; nil if there is none. Each question is about one field, so the other fields stay.
function site_search.on(path, site)
  local observation, answer = path[#path][1], path[#path][2]
  if observation.ask(site) == answer then return site end
  local found = search(path, observation.field)
  if not found then return nil end
  local where = { tag = site.tag, file = site.file, func = site.func, module = site.module }
  where[observation.field] = found
  return where
end

local MOST_STATES = 20000 -- of one search for a shortest string

-- Returns the site with the shortest strings that gives the answers of `path`. `site` gives these
-- answers too; it has the string of a field whose search would take too long.
function site_search.shortest(path, site)
  local where = {}
  for field, longest in pairs(LONGEST) do
    where[field] = automaton.shortest(wanted_of(path, field), longest, MOST_STATES)
      or site[field]
  end
  return where
end

return site_search
