-- source - the text of a policy: what can be refused before it runs, and where its tests stand.

local here = require("loam.here")

local source = {}

local byte, find, sub = string.byte, string.find, string.sub

local ESC = 27 -- first byte of compiled Lua

-- Refuses what is not the whole text of a Lua file. An empty or cut-off file can be valid Lua; a
-- file without its last newline may be half written.
function source.check(text)
  if find(text, "^%s*$") then
    here.refuse("file", "the file is empty", "it has to end by returning loam.policy{…}")
  end
  if byte(text, 1) == ESC then
    here.refuse("file", "the file is compiled Lua, not text", "give the Lua source")
  end
  local _, lines = string.gsub(sub(text, 1, (find(text, "\0", 1, true) or 1) - 1), "\n", "")
  if find(text, "\0", 1, true) then
    here.refuse("file", "the file is not text: it has a zero byte", nil, lines + 1)
  end
  if byte(text, -1) ~= 10 then
    here.refuse("file", "the last line has no newline: the file may be cut off",
      "end the last line with a newline")
  end
end

-- ---- where the tests stand

local function long_end(text, at)
  local level = string.match(text, "^%[(=*)%[", at)
  if not level then return nil end
  local _, last = find(text, "]" .. level .. "]", at, true)
  return last or #text
end

local function quoted_end(text, at)
  local quote = sub(text, at, at)
  local i = at + 1
  while i <= #text do
    local c = sub(text, i, i)
    if c == "\\" then
      i = i + 1
    elseif c == quote or c == "\n" then
      return i
    end
    i = i + 1
  end
  return #text
end

-- The end of the comment or string at `at`, nil where there is none.
local function skipped(text, at)
  if sub(text, at, at + 1) == "--" then
    return long_end(text, at + 2) or (find(text, "\n", at, true) or #text + 1) - 1
  end
  local c = sub(text, at, at)
  if c == "\"" or c == "'" then return quoted_end(text, at) end
  return c == "[" and long_end(text, at) or nil
end

-- Braces and words of the text in order, comments and strings left out.
local function tokens(text)
  local at, line = 1, 1
  local function pass(to)
    local _, n = string.gsub(sub(text, at, to), "\n", "")
    at, line = to + 1, line + n
  end
  return function()
    while at <= #text do
      local last = skipped(text, at)
      if last then
        pass(last)
      else
        local word = string.match(text, "^[%w_]+", at) or sub(text, at, at)
        local start = line
        pass(at + #word - 1)
        if not find(word, "^%s$") then return word, start end
      end
    end
  end
end

local OPEN = { ["{"] = 1, ["("] = 1, ["}"] = -1, [")"] = -1 }

-- The lines on which the entries of `tests = {` start; `start` is the line of `tests`. Entries
-- that are made in another way are not found.
---@return table
function source.test_lines(text)
  local lines, depth, before, last = {}, nil, nil, nil
  for word, line in tokens(text) do
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
