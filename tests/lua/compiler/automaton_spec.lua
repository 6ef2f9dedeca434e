-- automaton_spec.lua - compares automata of questions with the questions themselves, and the
-- strings that they find with all short strings.

require("support")
local automaton = require("loam.compiler.automaton")
local tag = require("loam.symbolic.tag")

local ROUNDS, LONGEST = 300, 4
local LETTERS = { "a", "b", ".", "x" }

local random -- function(n) that returns a number from 1 to n

local function seed_with(seed)
  local state = seed
  random = function(n)
    state = state * 16807 % 2147483647
    return state % n + 1
  end
end

local function random_text(pieces, most)
  local out = {}
  for i = 1, random(most + 1) - 1 do out[i] = pieces[random(#pieces)] end
  return table.concat(out)
end

local function random_keys()
  local keys, seen = { words = {}, first = {} }, {}
  for _ = 1, random(6) - 1 do
    local word = random_text(LETTERS, 3)
    if not seen[word] then
      seen[word] = true
      keys.words[#keys.words + 1] = word
    end
  end
  table.sort(keys.words)
  for i, word in ipairs(keys.words) do keys.first[word] = keys.words[random(2) == 1 and 1 or i] end
  if keys.words[1] then keys.first[keys.words[1]] = keys.words[1] end
  return keys
end

local ABOUT = {
  is = function() return random_text(LETTERS, 3) end,
  under = function() return random_text(LETTERS, 2) end,
  glob = function() return random_text({ "a", "b", ".", "*", "?", "*" }, 4) end,
  part = function() return random(3) end,
  key = random_keys,
}
local HOW = { "is", "under", "glob", "part", "key" }

local function random_question()
  local how = HOW[random(#HOW)]
  local part = how ~= "part" and random(3) == 1 and random(3) or nil
  return { how = how, part = part, about = ABOUT[how]() }
end

-- Returns the answer of a question, without an automaton.
local function answer_of(question, text)
  if question.how == "part" then return tag.part(text, question.about) ~= nil end
  if question.part then text = tag.part(text, question.part) end
  if not text then return false end
  if question.how == "key" then return question.about.first[text] or false end
  return tag[question.how](text, question.about)
end

local function answers_that_can_be(question)
  if question.how ~= "key" then return { true, false } end
  local list = { false }
  for word, first in pairs(question.about.first) do
    if word == first then list[#list + 1] = word end
  end
  return list
end

local function all_texts()
  local list, from = { "" }, 1
  for _ = 1, LONGEST do
    local to = #list
    for i = from, to do
      for _, letter in ipairs(LETTERS) do list[#list + 1] = list[i] .. letter end
    end
    from = to + 1
  end
  return list
end

local TEXTS = all_texts()

-- Calls `visit(wanted, answers)` for each combination of answers.
local function each_combination(questions, automata, visit)
  local wanted, answers = {}, {}
  local function go(i)
    if i > #questions then return visit(wanted, answers) end
    for _, answer in ipairs(answers_that_can_be(questions[i])) do
      wanted[i], answers[i] = { automata[i], answer }, tostring(answer)
      go(i + 1)
    end
    wanted[i], answers[i] = nil, nil
  end
  go(1)
end

-- Returns one of the texts for each combination of answers; the key is the answers as text.
local function known_of(questions, automata)
  local found = {}
  for _, text in ipairs(TEXTS) do
    local answers = {}
    for i, question in ipairs(questions) do
      local answer = answer_of(question, text)
      assert.equal(answer, automaton.answer(automata[i], text))
      answers[i] = tostring(answer)
    end
    local id = table.concat(answers, "|")
    found[id] = found[id] or text
  end
  return found
end

describe("automata of random questions", function()
  it("answer as the questions do, and find a text for all possible answers", function()
    seed_with(7)
    local impossible = 0
    for _ = 1, ROUNDS do
      local questions, automata = {}, {}
      for i = 1, random(6) do
        questions[i] = random_question()
        automata[i] = automaton.of(questions[i])
      end
      local known = known_of(questions, automata)
      each_combination(questions, automata, function(wanted, answers)
        local text, one = automaton.search(wanted, LONGEST), known[table.concat(answers, "|")]
        assert.equal(one ~= nil, text ~= nil)
        if not text then
          impossible = impossible + 1
          return
        end
        for i, question in ipairs(questions) do
          assert.equal(answers[i], tostring(answer_of(question, text)))
        end
      end)
    end
    assert.is_true(impossible > 100)
  end)
end)

describe("a search", function()
  it("gives up above the greatest length", function()
    local long = automaton.of { how = "is", about = ("a"):rep(10) }
    assert.equal(("a"):rep(10), automaton.search({ { long, true } }, 10))
    assert.is_nil(automaton.search({ { long, true } }, 9))
    local both = { { automaton.of { how = "glob", about = "*ab*" }, true },
                   { automaton.of { how = "glob", about = "*ba*" }, true } }
    assert.equal(3, #automaton.search(both, 3))
    assert.is_nil(automaton.search(both, 2))
  end)

  it("finds a byte that no question names", function()
    local wanted = {}
    for b = 1, 255 do
      if b ~= 200 then
        wanted[#wanted + 1] = { automaton.of { how = "is", about = string.char(b) }, false }
      end
    end
    wanted[#wanted + 1] = { automaton.of { how = "glob", about = "?" }, true }
    assert.equal(string.char(200), automaton.search(wanted, 255))
    wanted[#wanted + 1] = { automaton.of { how = "is", about = string.char(200) }, false }
    assert.is_nil(automaton.search(wanted, 255))
  end)

  it("goes straight to one of many long keys", function()
    seed_with(3)
    local digits, keys = {}, { words = {}, first = {} }
    for i = 0, 15 do digits[i + 1] = ("%x"):format(i) end
    for i = 1, 1000 do
      local word = {}
      for at = 1, 36 do word[at] = digits[random(16)] end
      keys.words[i] = "tenant." .. table.concat(word)
    end
    table.sort(keys.words)
    for _, word in ipairs(keys.words) do keys.first[word] = keys.words[1] end
    local made = automaton.of { how = "key", about = keys }
    assert.equal(keys.words[1], keys.first[automaton.search({ { made, keys.words[1] } }, 255)])
    assert.is_true(#made.states < 1000) -- of 40,000, for which a policy has not enough memory
  end)
end)
