-- source.lua - the text of a policy: checks before it runs, and the lines of its tests.

local frame = require("loam.report.frame")

local source = {}

local byte, find, sub = string.byte, string.find, string.sub

local ESC = 27 -- first byte of compiled Lua
-- The most `goto` and `break` in one file: LuaJIT parses 4,000 in 20 ms, and 60,000 in 4 s.
local MAX_JUMPS = 4000

local check_questions

-- Returns how often a text has a word, which may be a part of a longer word.
local function count(text, word)
  return (select(2, string.gsub(text, word, "")))
end

-- Refuses a file with very many jumps: LuaJIT's parser compares each `goto` and `break` of a
-- function with all others, and no budget can interrupt the parser. The words are counted in
-- comments and strings too, because a count that skips those could be deceived.
local function check_jumps(text)
  local jumps = count(text, "goto") + count(text, "break")
  if jumps <= MAX_JUMPS then return end
  frame.refuse("file", ("the file has the words 'goto' and 'break' %d times, a policy has them at "
    .. "most %d times"):format(jumps, MAX_JUMPS), "use tables instead of generated code")
end

-- Refuses UTF-16, which begins with a byte order mark or has a zero byte behind each character. The
-- check for zero bytes would call it a binary file.
local function check_encoding(text)
  if find(text, "^\255\254") or find(text, "^\254\255") or find(text, "^[\t\r\n -~]%z") then
    frame.refuse("file", "the file is not UTF-8: it seems to be UTF-16", "save it as UTF-8", 1)
  end
end

-- Refuses a text that cannot be a whole Lua file. An empty file, or one that was cut off, can be
-- valid Lua; a last line without a newline may be half written.
function source.check(text)
  if find(text, "^%s*$") then
    frame.refuse("file", "the file is empty", "end the file with return loam.policy{…}")
  end
  if byte(text, 1) == ESC then
    frame.refuse("file", "the file is compiled Lua, not text", "load the Lua source")
  end
  check_encoding(text)
  local _, lines = string.gsub(sub(text, 1, (find(text, "\0", 1, true) or 1) - 1), "\n", "")
  if find(text, "\0", 1, true) then
    frame.refuse("file", "the file is not text: it has a zero byte", nil, lines + 1)
  end
  if byte(text, -1) ~= 10 then
    frame.refuse("file", "the last line has no newline: the file may be cut off",
      "end the last line with a newline")
  end
  check_jumps(text)
  check_questions(text)
end

-- ---- words

-- Returns the last byte of the long string, such as [[a]] or [=[a]=], that begins at `at`; nil:
-- none does. One that is not closed ends with the text.
local function long_end(text, at)
  local level = string.match(text, "^%[(=*)%[", at)
  if not level then return nil end
  local _, last = find(text, "]" .. level .. "]", at, true)
  return last or #text
end

-- Returns the last byte of the string in quotes that begins at `at`. One that is not closed ends
-- with its line.
local function quoted_end(text, at)
  local quote = sub(text, at, at)
  local i = at + 1
  while i <= #text do
    local c = sub(text, i, i)
    if c == "\\" then -- \z goes on to the next character that is no white space
      i = select(2, find(text, "^z%s*", i + 1)) or select(2, find(text, "^\r\n", i + 1)) or i + 1
    elseif c == quote or c == "\n" or c == "\r" then
      return i
    end
    i = i + 1
  end
  return #text
end

---@return integer|nil the last byte of the comment or string that begins at `at`; nil: none does
function source.comment_or_string_end(text, at)
  if sub(text, at, at + 1) == "--" then
    return long_end(text, at + 2) or (find(text, "[\r\n]", at) or #text + 1) - 1
  end
  local c = sub(text, at, at)
  if c == "\"" or c == "'" then return quoted_end(text, at) end
  return c == "[" and long_end(text, at) or nil
end

local STRING = "\"" -- what pieces() returns for a string

-- Characters that may begin a comment or a string.
local MAY_BEGIN = { ["-"] = true, ["\""] = true, ["'"] = true, ["["] = true }

-- Iterates over the words, strings and other characters of a text, with their lines. Leaves out
-- comments and white space.
local function pieces(text)
  local at, line = 1, 1
  local function pass(to)
    local _, n = string.gsub(sub(text, at, to), "\n", "")
    at, line = to + 1, line + n
  end
  return function()
    while at <= #text do
      local space = find(text, "%S", at) or #text + 1
      if space > at then pass(space - 1) end
      local c = sub(text, at, at)
      local last, start = MAY_BEGIN[c] and source.comment_or_string_end(text, at), line
      if last then
        local is_comment = c == "-"
        pass(last)
        if not is_comment then return STRING, start end
      elseif c ~= "" then
        local word = string.match(text, "^[%w_]+", at) or c
        at = at + #word
        return word, start
      end
    end
  end
end

-- By question about a string: what to write in place of two strings that `or` joins.
local ONE_BY_ONE = {
  under = 'req.tag:under "a" or req.tag:under "b"', is = 'req.tag:is "a" or req.tag:is "b"',
  glob = 'req.tag:glob "a" or req.tag:glob "b"',
  ["=="] = 'req.tag == "a" or req.tag == "b"', ["~="] = 'req.tag ~= "a" and req.tag ~= "b"',
}

-- Returns what to write in place of a question that begins with these two pieces of a text; nil:
-- they begin no question about a string.
local function question_of(before, word)
  if before == ":" then return ONE_BY_ONE[word] end
  return word == "=" and ONE_BY_ONE[before .. word] or nil
end

-- Characters behind a string that make it a part of another expression: `"b" == req.tag`.
local GOES_ON = {
  ["="] = true, ["~"] = true, ["<"] = true, [">"] = true, [":"] = true, ["."] = true,
}

local PAREN = { ["("] = true, [")"] = true }

local WORD_OF_LUA = {
  ["and"] = true, ["or"] = true, ["not"] = true, ["then"] = true, ["do"] = true, ["end"] = true,
  ["else"] = true, ["elseif"] = true, ["return"] = true, ["local"] = true, ["until"] = true,
  ["if"] = true, ["while"] = true, ["repeat"] = true, ["for"] = true, ["function"] = true,
  ["break"] = true, ["goto"] = true, ["in"] = true,
}

-- Returns a function that is to be called with each piece of a text and its line. It refuses
-- `not req.tag == "x"`, which Lua takes for `(not req.tag) == "x"`: that is false for each request.
local function negation_check()
  local depth -- of parentheses in the operand of a `not`; nil: no operand is being read
  local equals = "" -- what was read of == or ~= behind the operand
  local at, before = nil, "" -- the line of the `not`; the piece before this one
  return function(word, line)
    if word == "not" then
      depth, equals, at = 0, "", line
    elseif not depth then
      return
    elseif #equals == 2 then
      if word == STRING or find(word, "^%d") then
        frame.refuse("type", "'not' belongs to the left side of '" .. equals .. "' alone",
          "write a " .. (equals == "==" and "~=" or "==") .. " b", at)
      end
      depth = nil
    elseif equals ~= "" then
      equals, depth = equals .. word, word == "=" and depth or nil
    elseif word == "(" then
      depth = before ~= "not" and depth + 1 or nil -- `not (a == b)` is right
    elseif word == ")" then
      depth = depth > 0 and depth - 1 or nil
    elseif depth == 0 and (word == "=" or word == "~") then
      equals = word
    elseif depth == 0 and (WORD_OF_LUA[word] or not find(word, "^[%w_.:\"]")) then
      depth = nil
    end
    before = word
  end
end

-- Refuses `req.tag:under "a" or "b"` and `req.tag == "a" or "b"`, with and without parentheses. A
-- string counts as true in Lua, so the question is about one string only, or its answer is always
-- true. Refuses also a `not` that does not belong to the whole comparison.
function check_questions(text)
  local advice, stage, at -- of the question; "asked", "first" string, "or", "second" string; line
  local before, check_negation = "", negation_check()
  for word, line in pieces(text) do
    check_negation(word, line)
    local question = question_of(before, word)
    if question then
      advice, stage = question, "asked"
    elseif word == STRING and (stage == "asked" or stage == "or") then
      stage, at = stage == "or" and "second" or "first", line
    elseif stage == "first" and word == "or" then
      stage = "or"
    elseif not PAREN[word] then
      if stage == "second" and not GOES_ON[word] then
        frame.refuse("type", "'or' joins two strings, so one is never asked about",
          "write " .. advice, at)
      end
      stage = nil
    end
    before = word
  end
end

-- ---- the lines of the policy and of its tests

local OPEN = { ["{"] = 1, ["("] = 1, ["}"] = -1, [")"] = -1 }
local BEFORE_ENTRY = { ["{"] = true, [","] = true, [";"] = true }

-- Finds the line of the entry `key = …` in `loam.policy { … }`. In `return loam.policy { … }` Lua
-- forgets the line of the call before loam.policy runs.
---@return integer|nil
function source.entry_line(text, key)
  local depth, before, last, last_line = nil, nil, nil, nil
  for word, line in pieces(text) do
    if not depth then
      if word == "{" and (last == "policy" or last == "(" and before == "policy") then depth = 1 end
    else
      if depth == 1 and word == "=" and last == key and BEFORE_ENTRY[before] then
        return last_line
      end
      depth = depth + (OPEN[word] or 0)
      if depth == 0 then return nil end
    end
    before, last, last_line = last, word, line
  end
  return nil
end

-- Finds the lines on which the entries of `tests = { {…}, {…} }` begin. Entries that the policy
-- makes in another way are not found.
---@return table lines by number of the test, and `start`: the line of `tests`
function source.test_lines(text)
  local lines, depth, before, last = {}, nil, nil, nil
  for word, line in pieces(text) do
    if not depth then
      if word == "{" and last == "=" and before == "tests" then depth = 1 end
      if word == "tests" then lines.start = line end
      before, last = last, word
    else
      if word == "{" and depth == 1 then lines[#lines + 1] = line end
      depth = depth + (OPEN[word] or 0)
      if depth == 0 then return lines end
    end
  end
  return lines
end

return source
