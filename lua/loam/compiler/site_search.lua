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
    local can_exclude = wanted[i][2] ~= false or last[2] ~= false
    if can_exclude and not automaton.search({ wanted[i], last }, longest) then
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

-- Returns a string that gives an answer other than no to a question without a part.
local function plain_answer(observation, answer)
  if observation.how == "key" then return answer end
  if observation.how ~= "glob" then return observation.about end
  return (string.gsub(string.gsub(observation.about, "*", ""), "?", "x"))
end

-- Returns a string whose part `index` is `part`. Its other parts are those of `text`, as far as
-- that has them.
local function with_part(text, index, part)
  local parts = {}
  for word in string.gmatch(text .. ".", "([^.]*)%.") do parts[#parts + 1] = word end
  for i = #parts + 1, index - 1 do parts[i] = "x" end
  parts[index] = part
  return table.concat(parts, ".")
end

local MOST_PARTS = 128

-- Returns a string that gives the last answer of a path and may give all others. Most searches end
-- here, and cost a call of each question alone: a policy with a thousand questions has a thousand
-- searches.
local function guess(observation, answer, site)
  if not answer or (observation.part or 0) > MOST_PARTS then return nil end
  local text = site[observation.field]
  if observation.how == "part" then
    local index = observation.about
    return index <= MOST_PARTS and with_part(text, index, "x") or nil
  end
  local found = plain_answer(observation, answer)
  return observation.part and with_part(text, observation.part, found) or found
end

-- Returns two strings that match the pattern of a question, with the string of a site in place of
-- the first star and of the last one; nothing for another question. If patterns do not exclude each
-- other, one of the strings mostly gives all answers of the path, so that the automata of many
-- patterns need not be searched together.
local function wider_guesses(observation, answer, site)
  if not answer or observation.how ~= "glob" or observation.part then return nil end
  local before, behind = string.match(observation.about, "^([^*]*)%*(.*)$")
  if not before then return nil end
  local front, back = string.match(observation.about, "^(.*)%*([^*]*)$")
  local text = site[observation.field]
  local function plain(words) return plain_answer({ how = "glob", about = words }) end
  return plain(before) .. text .. plain(behind), plain(front) .. text .. plain(back)
end

local MOST_BROKEN = 3

-- Returns the first steps of a path that a site does not give, at most MOST_BROKEN. Looks at
-- answers of no only if the site gives all other answers: those are few, and mostly exclude the
-- site.
local function broken(path, field, where)
  local list = {}
  local function add(is_no)
    for _, step in ipairs(path) do
      local is_due = (step[2] == false) == is_no and step[1].field == field
      if is_due and step[1].ask(where) ~= step[2] then
        list[#list + 1] = step
        if #list == MOST_BROKEN then return end
      end
    end
  end
  add(false)
  if #list == 0 then add(true) end
  return list
end

-- Returns the text with which all strings begin that a question answers with yes; nil if the
-- function knows no such text.
local function head_of(question)
  if question.part or question.how == "key" or question.how == "part" then return nil end
  return question.how == "glob" and string.match(question.about, "^[^*?]*") or question.about
end

-- Returns whether surely no string has the answer yes to both of two questions about one field. If
-- a string has it for two questions by `under`, the longer of their two names has it too.
local function are_apart(one, other)
  local a, b = head_of(one), head_of(other)
  if not a or not b then return false end
  local common = math.min(#a, #b)
  if string.sub(a, 1, common) ~= string.sub(b, 1, common) then return true end
  if one.how == "is" then return not other.ask { [one.field] = a } end
  if other.how == "is" then return not one.ask { [one.field] = b } end
  if one.how == "glob" or other.how == "glob" then return false end
  return not one.ask { [one.field] = b } and not other.ask { [one.field] = a }
end

-- Returns whether one of these steps excludes the last step of a path, whose answer is not no. The
-- function compares texts and makes no search, so it does not find every such step.
local function surely_exclude_last(steps, path)
  for _, step in ipairs(steps) do
    if step[2] ~= false and are_apart(step[1], path[#path][1]) then return true end
  end
  return false
end

-- Returns whether one of these steps excludes the last step of a path, whose answer is not no. If
-- no string gives an answer, a wider question was mostly asked before.
local function exclude_last(steps, path, field)
  local last = path[#path]
  for _, step in ipairs(steps) do
    if not automaton.search(wanted_of({ step, last }, field), LONGEST[field]) then return true end
  end
  return false
end

-- Returns a copy of a site with another string in one field.
local function with_field(site, field, text)
  local where = { tag = site.tag, file = site.file, func = site.func, module = site.module }
  where[field] = text
  return where
end

-- Returns a copy of a site that has `text` in one field; nil if no site has such a text.
local function with_text(site, field, text)
  if not text or #text > LONGEST[field] or string.find(text, "\0", 1, true) then return nil end
  return with_field(site, field, text)
end

-- Returns a site with one of the guessed strings that gives the answers of `path`. Returns nil, and
-- whether there is none.
local function guessed(path, site)
  local observation, answer = path[#path][1], path[#path][2]
  local field = observation.field
  local where = with_text(site, field, guess(observation, answer, site))
  local steps = where and broken(path, field, where)
  if steps and #steps == 0 then return where end
  if steps and surely_exclude_last(steps, path) then return nil, true end
  for _, text in pairs { wider_guesses(observation, answer, site) } do
    where = with_text(site, field, text)
    if where and #broken(path, field, where) == 0 then return where end
  end
  return nil, steps ~= nil and exclude_last(steps, path, field)
end

-- Returns a site that gives the answers of `path`, where `site` gives all of them but perhaps the
-- last; nil if there is none. Each question is about one field, so the other fields stay.
function site_search.on(path, site)
  local observation, answer = path[#path][1], path[#path][2]
  if observation.ask(site) == answer then return site end
  local where, is_none = guessed(path, site)
  if where or is_none then return where end
  local found = search(path, observation.field)
  return found and with_field(site, observation.field, found)
end

-- Returns the site with the shortest strings that gives the answers of `path`, and how many states
-- the searches looked at. `site` gives these answers too; it has the string of a field whose search
-- would take more than `most` states.
function site_search.shortest(path, site, most)
  local where, sum = {}, 0
  for field, longest in pairs(LONGEST) do
    local text, states = automaton.shortest(wanted_of(path, field), longest, most)
    where[field], sum = text or site[field], sum + states
  end
  return where, sum
end

return site_search
