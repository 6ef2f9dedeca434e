-- sites.lua - the pairs of plans that the sites of two policies get.
--
-- A policy is a tree of questions about the strings of a site, with a plan at each end. A walk goes
-- down the tree of the old policy. At each plan it goes on down the tree of the new policy, where
-- many questions have their answers already. An answer that no site can give beside the others is
-- left out (compiler/site_search.lua), so each pair of plans is one that some site gets.

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

-- Calls `visit(old, new, path, site)` for each pair of different plans that a site gets. `path` is
-- the list of { question, answer } on the way, and `site` gives these answers.
function sites.each_pair(old, new, visit)
  local path, answers = {}, {}
  local walk
  local function follow(a, b, question, answer, site)
    path[#path + 1] = { question, answer }
    local where = site_search.on(path, site)
    if where then
      answers[question] = answer
      walk(next_of(a, question, answer), next_of(b, question, answer), where)
      answers[question] = nil
    end
    path[#path] = nil
  end
  function walk(a, b, site)
    local cell
    while a ~= b do
      cell = a.question and a or b.question and b
      if not cell then return visit(a, b, path, site) end
      local known = answers[cell.question]
      if known == nil then break end
      a, b = next_of(a, cell.question, known), next_of(b, cell.question, known)
    end
    if a == b then return end
    for _, answer in ipairs(answers_after(path, cell.question)) do
      follow(a, b, cell.question, answer, site)
    end
  end
  walk(old, new, { tag = "", file = "", func = "", module = "" })
end

return sites
