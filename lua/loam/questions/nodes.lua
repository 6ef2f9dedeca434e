-- nodes.lua - answers the query `nodes`: a whole policy as a graph, for `loam diff`.
--
-- The answer is text: a line for each strategy, leaf, test and question about a site. A line names
-- only cells of lines before it. Equal parts are one cell. Strings are "h" and their bytes in
-- hexadecimal, since a tag may hold any byte. command/diff/reader.lua reads the lines:
--
--   policy NAME APPLY HASH
--   input INPUT ARG FIELD NAME LEAST MOST POWER DEFAULT    POWER: 1: powers of two alone
--   strategy NUMBER NAME DESCRIBED LINE OPTIONS   OPTIONS: JSON, as in the answers of `check`
--   leaf ID NUMBER...                             the chain, with the members that no device serves
--   test ID INPUT ARG K YES NO                    input < K
--   computed ID CMP YES NO TEXT EXPRESSION...     in prefix order, first left, then right
--   question ID FIELD HOW PART TEXT ABOUT... : ANSWER=ID...
--   root ID

local answer = require("loam.questions.answer")
local budget = require("loam.compiler.budget")
local core = require("loam.core")
local hex = require("loam.report.hex").encode
local json = require("loam.report.json")
local lower = require("loam.compiler.lower")
local numbers = require("loam.compiler.numbers")
local policy = require("loam.compiler.policy")
local request = require("loam.symbolic.request")
local strategy = require("loam.language.strategy")

local nodes = {}

local function digits(n) return string.format("%.17g", n) end

-- What one answer has written so far: `id` numbers the cells, `done` has those with a line.
local function new_writer()
  return { id = numbers.new(), done = {}, graph = lower.graph(), roots = {}, sites = {} }
end

local function write(...)
  core.write(table.concat({ ... }, " ") .. "\n")
end

local FREE = { node = "node_free:", device = "device_free:" }

-- Writes the inputs that conditions of the policy may read.
local function write_inputs()
  local point = request.point(0)
  for _, input in ipairs(request.inputs()) do
    local field = request.field(input)
      or FREE[string.match(input.name, "^loam%.(%l+)")] .. input.arg
    write("input", input.input, input.arg, field, hex(input.name), digits(input.least),
      digits(input.most), input.power and 1 or 0, request.read(point, input))
  end
end

local function write_strategies()
  for _, member in ipairs(strategy.declared()) do
    write("strategy", member.number, hex(member.name), hex(strategy.described(member)),
      member.line or 0, hex(json.encode(strategy.report(member))))
  end
end

-- ---- plans

-- Appends an expression in prefix order.
local function add_expression(out, e)
  if type(e) == "number" then
    out[#out + 1] = "k" .. digits(e)
  elseif e.op == "input" then
    out[#out + 1] = string.format("i%d:%d", e.input, e.arg)
  else
    out[#out + 1] = e.op
    add_expression(out, e.a)
    if e.b then add_expression(out, e.b) end
  end
end

local function write_leaf(writer, cell)
  local list = {}
  for i, member in ipairs(strategy.members(cell.leaf.chain)) do list[i] = member.number end
  write("leaf", writer.id(cell), table.concat(list, " "))
end

local function write_test(writer, cell)
  local yes, no = writer.id(cell.yes), writer.id(cell.no)
  if cell.input then
    return write("test", writer.id(cell), cell.input.input, cell.input.arg, digits(cell.k), yes, no)
  end
  local c, out = cell.condition, {}
  add_expression(out, c.left)
  add_expression(out, c.right)
  return write("computed", writer.id(cell), c.cmp, yes, no, hex(c.text), table.concat(out, " "))
end

local function write_cell(writer, cell)
  if writer.done[cell] then return end
  writer.done[cell] = true
  if cell.leaf then return write_leaf(writer, cell) end
  write_cell(writer, cell.yes)
  write_cell(writer, cell.no)
  return write_test(writer, cell)
end

local function write_class(writer, class)
  budget.step("writing the plan of tag '" .. class.where.tag .. "'")
  local root = lower.run(class.made.tree, writer.graph)
  write_cell(writer, root)
  return writer.id(root)
end

-- ---- sites

local function about_words(observation)
  if observation.how ~= "key" then
    local about = observation.about
    return type(about) == "number" and tostring(about) or hex(about)
  end
  local out = {}
  for i, word in ipairs(observation.about.words) do
    out[i] = hex(word) .. "=" .. hex(observation.about.first[word])
  end
  return table.concat(out, " ")
end

local write_site

local function write_question(writer, node)
  local observation, answers = node.observation, {}
  for given, child in pairs(node.edges) do
    local word = type(given) == "string" and hex(given) or tostring(given)
    answers[#answers + 1] = word .. "=" .. write_site(writer, child)
  end
  table.sort(answers)
  write("question", writer.id(node), observation.field, observation.how, observation.part or 0,
    hex(observation.text or observation.name), about_words(observation), ":",
    table.concat(answers, " "))
  return writer.id(node)
end

-- Writes what a node of the trie leads to, once. Returns its id.
function write_site(writer, node)
  writer.sites[node] = writer.sites[node] or node.observation and write_question(writer, node)
    or write_class(writer, node.value)
  return writer.sites[node]
end

function nodes.run(made)
  local errors = policy.compile_all()
  if #errors > 0 then
    answer.refused("nodes", errors)
    return true
  end
  write("policy", hex(made.name), made.apply or "new", core.hash())
  write_inputs()
  write_strategies()
  write("root", write_site(new_writer(), policy.root()))
  return true
end

return nodes
