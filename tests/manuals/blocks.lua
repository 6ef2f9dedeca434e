-- blocks.lua - reads the code blocks of a manual in Markdown, and the marks that say how to test
-- them.
--
-- A block is between two fences (```), or is indented by four spaces after an empty line. An HTML
-- comment above a block says how it is tested; a reader of the page does not see it:
--
--   <!-- test: not run: REASON -->    it cannot be run; the test prints the reason and counts it
--   <!-- test: text -->               neither code nor output, such as a drawing
--   <!-- test: keys -->               the keys of answers in JSON, compared with the schemas
--   <!-- test: before COMMAND -->     a command that runs first
--   <!-- test: output of COMMAND -->  the block shows the output of the command
--   <!-- test: file NAME -->          the reader saves the block under this name; it is not run
--   <!-- test: keeps NUMBER -->       the program that the block starts with "&" runs until the end
--                                     of the manual, which gives it this process id
--   <!-- test: status NUMBER -->      the last command of the block ends with this exit status
--
-- The commands run in the folder that scene.sh makes, and may call its functions.
local blocks = {}

local kinds = { "not run:", "text", "keys", "before", "output of", "file", "keeps",
  "status" }

-- Returns the mark in a line of Markdown: { kind, value }. Returns nil if the line has none.
local function mark_in(line, at)
  local words = line:match("^<!%-%- test: (.-) %-%->$")
  if not words then return nil end
  for _, kind in ipairs(kinds) do
    if words:sub(1, #kind) == kind then return { kind = kind, value = words:sub(#kind + 2) } end
  end
  error(("line %d: no such mark: %s"):format(at, words), 0)
end

-- A state is a function that takes a line and returns the next state. `reader` has the list of
-- earlier blocks, the marks for the next block, the block that is being read, and whether the last
-- line was empty.
local state = {}

local function begin(reader, language, at)
  local block = { language = language, at = at, lines = {}, marks = reader.marks }
  reader.list[#reader.list + 1], reader.marks = block, {}
  return block
end

function state.outside(reader, line, at)
  local mark, language = mark_in(line, at), line:match("^```(%w*)")
  if mark then
    table.insert(reader.marks, mark)
  elseif language then
    reader.block = begin(reader, language, at + 1)
    return state.fenced
  elseif line:match("^    %S") and reader.was_empty then
    reader.block = begin(reader, nil, at)
    return state.indented(reader, line)
  elseif line ~= "" and #reader.marks > 0 then
    error(("line %d: a mark without a block"):format(at), 0)
  end
  return state.outside
end

function state.fenced(reader, line)
  if line:match("^```") then return state.outside end
  table.insert(reader.block.lines, line)
  return state.fenced
end

function state.indented(reader, line, at)
  if line ~= "" and not line:match("^    ") then
    local lines = reader.block.lines
    while lines[#lines] == "" do table.remove(lines) end
    return state.outside(reader, line, at)
  end
  table.insert(reader.block.lines, line:sub(5))
  return state.indented
end

-- Returns the blocks of a text in order: { language, at, lines, marks = { { kind, value } } }. The
-- language of an indented block is nil; `at` is the number of its first line.
function blocks.of(text)
  local reader = { list = {}, marks = {}, was_empty = true }
  local current, at = state.outside, 0
  for line in (text:gsub("\n*$", "\n\nend\n")):gmatch("(.-)\n") do
    at = at + 1
    current = current(reader, line, at)
    reader.was_empty = line == ""
  end
  assert(current == state.outside, "a fence is not closed")
  return reader.list
end

return blocks
