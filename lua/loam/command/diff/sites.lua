-- sites.lua - the pairs of plans that the sites of two policies get.
--
-- A policy is a graph of questions about the strings of a site, with a plan at each end. A walk
-- goes down the graph of the old policy. Where the new policy asks the question too, the walk also
-- goes down the graph of the new policy. At each plan of the old policy, it goes on down the graph
-- of the new policy, where many questions have their answers already. An answer that no site can
-- give beside the others is left out (compiler/site_search.lua), so each pair of plans is one that
-- some site gets.
--
-- A graph that joins its ways has many more ways than nodes. So after some hundred visits, the walk
-- does not go on from a pair of nodes if every way from there was possible and was walked before.

local automaton = require("loam.compiler.automaton")
local site_search = require("loam.compiler.site_search")

local sites = {}

-- Returns the strings that one step of a path leaves for its field or part; nil if they are many.
---@return string[]|nil
function sites.words_left(step)
  local question, answer = step[1], step[2]
  if not answer then return nil end
  if question.how == "is" then return { question.about } end
  if question.how ~= "key" then return nil end
  local words = {}
  for _, word in ipairs(question.about.words) do
    if question.about.first[word] == answer then words[#words + 1] = word end
  end
  return words
end

-- Returns an automaton for what a question asks of the part that it is about.
local function inner(question)
  question.inner = question.inner
    or automaton.of { how = question.how, about = question.about }
  return question.inner
end

local function whole(question)
  question.whole = question.whole or automaton.of(question)
  return question.whole
end

local function answers_for(words, made)
  local seen, list = {}, {}
  for _, word in ipairs(words) do
    local answer = automaton.answer(made, word)
    if not seen[answer] then list[#list + 1] = answer end
    seen[answer] = true
  end
  return list
end

local FEW = 64 -- strings whose answers are computed one by one

-- Lists the answers that a question may have after the questions of a path. A question before it
-- may have left few strings for the field; then only their answers are possible.
local function answers_after(path, question)
  for i = #path, 1, -1 do
    local other = path[i][1]
    local is_whole = other.part == nil
    if other.field == question.field and (is_whole or other.part == question.part) then
      local words = sites.words_left(path[i])
      if words and #words <= FEW then
        return answers_for(words, is_whole and whole(question) or inner(question))
      end
    end
  end
  return site_search.answers(question)
end

local function next_of(cell, question, answer)
  if cell.question ~= question then return cell end
  return assert(cell.answers[answer], "an answer that the compiler took for impossible")
end

local MANY_VISITS = 256   -- then known ways are left out

-- The most steps of a walk. They take half a minute.
sites.MOST_STEPS = 200000

-- Makes an object that knows the pairs of nodes from which all ways were walked. Each entry of a
-- pair has the answers, given before the pair was reached, that decided which ways there were.
local function new_walked()
  local by_old = {}
  local walked = {}
  function walked.add(a, b, used)
    by_old[a] = by_old[a] or {}
    by_old[a][b] = by_old[a][b] or {}
    table.insert(by_old[a][b], used)
  end
  -- Returns an entry of a pair whose answers are the present ones too; nil if there is none.
  function walked.find(a, b, answers)
    for _, used in ipairs(by_old[a] and by_old[a][b] or {}) do
      local is_equal = true
      for question, answer in pairs(used) do is_equal = is_equal and answers[question] == answer end
      if is_equal then return used end
    end
    return nil
  end
  return walked
end

-- Calls `visit(old, new, path, site)` for each pair of different plans that a site gets, at least
-- once. `path` is the list of { question, answer } on the way, and `site` gives these answers.
-- Calls `tick()` now and then.
---@return boolean is_partial whether other ways to pairs of plans were left out
function sites.each_pair(old, new, visit, tick)
  local path, answers, walked = {}, {}, new_walked()
  local visits, steps, is_partial = 0, 0, false
  local walk

  local function follow(a, b, question, answer, site)
    steps = steps + 1
    tick()
    if steps > sites.MOST_STEPS then
      error({ words = "the two policies have too many classes of tags together to be compared; "
        .. "ask questions that both ask in one order" }, 0)
    end
    path[#path + 1] = { question, answer }
    local where, used = site_search.on(path, site), nil
    if where then
      answers[question] = answer
      used = walk(next_of(a, question, answer), next_of(b, question, answer), where)
      answers[question] = nil
    end
    path[#path] = nil
    return used
  end

  -- Walks all ways from a pair of nodes. Returns the answers so far that decided about them; nil if
  -- some way was not possible, as after other answers it may be.
  local function walk_all(a, b, question, site)
    local list, used = answers_after(path, question), {}
    local is_whole = #list == #site_search.answers(question)
    for _, answer in ipairs(list) do
      local below = follow(a, b, question, answer, site)
      is_whole = is_whole and below ~= nil
      for other, known in pairs(below or {}) do used[other] = known end
    end
    used[question] = nil
    return is_whole and used or nil
  end

  function walk(a, b, site)
    local used, question = {}, nil
    while a ~= b do
      local cell = a.question and a or b.question and b
      if not cell then
        visits = visits + 1
        visit(a, b, path, site)
        return used
      end
      question = cell.question
      if answers[question] == nil then break end
      used[question] = answers[question]
      a, b = next_of(a, question, used[question]), next_of(b, question, used[question])
    end
    if a == b then return used end
    local below = visits >= MANY_VISITS and walked.find(a, b, answers)
    if below then
      is_partial = true
    else
      below = walk_all(a, b, question, site)
      if below then walked.add(a, b, below) end
    end
    for other, known in pairs(below or {}) do used[other] = known end
    return below and used
  end

  walk(old, new, { tag = "", file = "", func = "", module = "" })
  return is_partial
end

return sites
