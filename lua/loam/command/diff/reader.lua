-- reader.lua - reads the answer to the query `nodes` (questions/nodes.lua): a policy as a graph.
--
-- Both policies of a comparison are read into one pool, in which equal cells are one table. So
-- parts that are alike in both are found by `==`. A test asks if a dimension is at most `upto`.

local automaton = require("loam.compiler.automaton")
local dimensions = require("loam.command.diff.dimensions")
local hex = require("loam.report.hex")
local json = require("loam.report.json")

local reader = {}

---@class loam.DiffCell a leaf { id, leaf = members }, a test { id, dim, upto, yes, no }, or a
--- question about the site { id, question, answers }

---@class loam.DiffMember a strategy { number, name, described, line, report, same }
--- same: the number that both policies use for it

---@class loam.DiffPolicy { name, apply, hash, members, root }

---@return table pool for reader.read
function reader.pool()
  return { cells = {}, count = 0, dims = dimensions.new(), questions = {} }
end

local function intern(pool, key, cell)
  local found = pool.cells[key]
  if found then return found end
  pool.count = pool.count + 1
  cell.id = pool.count
  pool.cells[key] = cell
  return cell
end

local function test(pool, dim, upto, yes, no)
  if yes == no or upto >= dim.most then return yes end
  if upto < dim.least then return no end
  local key = ("t %d %.17g %d %d"):format(dim.number, upto, yes.id, no.id)
  return intern(pool, key, { dim = dim, upto = upto, yes = yes, no = no })
end

-- ---- conditions

local BINARY = { add = true, sub = true, mul = true, div = true, mod = true, pow = true, min = true,
                 max = true }

-- Reads an expression from words[at] on. Returns it, and the index after it.
local function expression(pool, words, at)
  local word = words[at]
  local digits = word:match("^k(.*)$")
  if digits then return tonumber(digits), at + 1 end
  if word:find("^i%d") then
    return { op = "input", dim = assert(pool.dims.by_key[word]) }, at + 1
  end
  local e = { op = word }
  e.a, at = expression(pool, words, at + 1)
  if BINARY[word] then e.b, at = expression(pool, words, at) end
  return e, at
end

-- The text of a condition is LEFT CMP RIGHT, so the text of a side is what its constant leaves.
local function side_texts(text)
  local sign = text:find(" [<>=]=? [^<>=]*$")
  if not sign then return text, text end
  return text:sub(1, sign - 1), text:sub(1, sign - 1)
end

local function computed(pool, words)
  local c = { cmp = words[3], text = hex.decode(words[6]), key = table.concat(words, " ", 7) }
  local middle, last
  c.left, middle = expression(pool, words, 7)
  c.right, last = expression(pool, words, middle)
  c.left_key = table.concat(words, " ", 7, middle - 1)
  c.right_key = table.concat(words, " ", middle, last - 1)
  c.left_text, c.right_text = side_texts(c.text)
  c.key = c.cmp .. " " .. c.key
  return dimensions.computed(pool.dims, c)
end

-- Makes the cell of "low <= dim <= high".
local function between(pool, dim, low, high, yes, no)
  local above = test(pool, dim, high, yes, no)
  local before = dim.kind == "real" and dimensions.pred(low) or low - 1
  if low <= dim.least then return above end
  return test(pool, dim, before, no, above)
end

-- ---- questions about sites

local function read_about(how, words, first, last)
  if how == "part" then return tonumber(words[first]) end
  if how ~= "key" then return hex.decode(words[first]) end
  local keys = { words = {}, first = {} }
  for i = first, last do
    local word, representative = words[i]:match("^(%w+)=(%w+)$")
    word = hex.decode(word)
    keys.words[#keys.words + 1], keys.first[word] = word, hex.decode(representative)
  end
  return keys
end

local function ask(question, where)
  question.whole = question.whole or automaton.of(question)
  return automaton.answer(question.whole, where[question.field] or "")
end

local function question_of(pool, words, colon)
  local key = table.concat(words, " ", 3, 5) .. " " .. table.concat(words, " ", 7, colon - 1)
  local found = pool.questions[key]
  if found then return found end
  local part = tonumber(words[5])
  local question = {
    key = key, field = words[3], how = words[4], part = part > 0 and part or nil,
    text = hex.decode(words[6]), about = read_about(words[4], words, 7, colon - 1),
  }
  question.ask = function(where) return ask(question, where) end
  pool.questions[key] = question
  return question
end

local ANSWER = { ["true"] = true, ["false"] = false }

local function index_of(words, wanted)
  for i, word in ipairs(words) do
    if word == wanted then return i end
  end
  return error("a question without answers")
end

-- Reads the answers of a question. A question whose answers all lead to one cell is that cell.
local function question_cell(pool, words, cells)
  local colon = index_of(words, ":")
  local question, answers, only, differ = question_of(pool, words, colon), {}, nil, false
  local key = { "q", question.key }
  for i = colon + 1, #words do
    local word, id = words[i]:match("^(%w+)=(%d+)$")
    local given = ANSWER[word]
    if given == nil then given = hex.decode(word) end
    answers[given] = cells[tonumber(id)]
    only, differ = only or answers[given], differ or (only ~= nil and only ~= answers[given])
    key[#key + 1] = word .. "=" .. answers[given].id
  end
  if not differ then return only end
  return intern(pool, table.concat(key, " "), { question = question, answers = answers })
end

-- ---- lines

local LINE = {}

function LINE.policy(made, words)
  made.name, made.apply, made.hash = hex.decode(words[2]), words[3], words[4]
end

function LINE.input(made, words)
  local key = ("i%s:%s"):format(words[2], words[3])
  dimensions.input(made.pool.dims, key, {
    kind = words[8] == "1" and "power" or "whole", field = words[4], name = hex.decode(words[5]),
    least = tonumber(words[6]), most = tonumber(words[7]), default = tonumber(words[9]),
  })
end

function LINE.strategy(made, words)
  local member = {
    number = tonumber(words[2]), name = hex.decode(words[3]), described = hex.decode(words[4]),
    line = tonumber(words[5]), report = json.decode(hex.decode(words[6])),
  }
  made.members[member.number] = member
end

function LINE.leaf(made, words)
  local list, key = {}, { "l" }
  for i = 3, #words do
    list[#list + 1] = made.members[tonumber(words[i])]
    key[#key + 1] = list[#list].same
  end
  made.cells[tonumber(words[2])] = intern(made.pool, table.concat(key, " "), { leaf = list })
end

function LINE.test(made, words)
  local cells, dim = made.cells, made.pool.dims.by_key[("i%s:%s"):format(words[3], words[4])]
  local yes, no = cells[tonumber(words[6])], cells[tonumber(words[7])]
  cells[tonumber(words[2])] = test(made.pool, dim, tonumber(words[5]) - 1, yes, no)
end

function LINE.computed(made, words)
  local cells, dim, low, high = made.cells, computed(made.pool, words)
  local yes, no = cells[tonumber(words[4])], cells[tonumber(words[5])]
  cells[tonumber(words[2])] = between(made.pool, dim, low, high, yes, no)
end

function LINE.question(made, words)
  made.cells[tonumber(words[2])] = question_cell(made.pool, words, made.cells)
end

function LINE.root(made, words) made.root = made.cells[tonumber(words[2])] end

local function read_lines(made, text, wanted)
  for line in text:gmatch("[^\n]+") do
    local kind = line:match("^%l+")
    if (kind == "policy" or kind == "strategy") == wanted then
      local words = {}
      for word in line:gmatch("%S+") do words[#words + 1] = word end
      LINE[kind](made, words)
    end
  end
end

-- Reads the policy and the strategies of an answer; reader.finish reads its graph.
---@return loam.DiffPolicy
function reader.begin(pool, text)
  local made = { pool = pool, members = {}, cells = {}, text = text }
  read_lines(made, text, true)
  return made
end

-- Reads the graph. Each member has its number `same` now (strategies.lua), so that leaves with
-- equal chains are one cell.
function reader.finish(made)
  read_lines(made, made.text, false)
  made.text, made.cells = nil, nil
end

return reader
