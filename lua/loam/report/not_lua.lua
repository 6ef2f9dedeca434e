-- not_lua.lua - what people write from the habit of another language, and what Lua writes instead.
--
-- LuaJIT's parser names one character of an operator that it does not know ("'then' expected near
-- '&'"). This module also reads the line, so that the diagnostic can name the whole operator. It
-- speaks only about a line that the parser has refused: an entry needs a place in LuaJIT's message
-- and a place in the line.

local diag = require("loam.report.diag")
local typography = require("loam.report.typography")

local find, format, gsub, sub = string.find, string.format, string.gsub, string.sub

local not_lua = {}

local MAX_LINE = 1000 -- bytes of a line that are looked at

local NO_BITS = "Lua 5.1 has no bit operators: write "
local NO_COMMON = "x + y if x and y have no bit in common"
local ASSIGN = "'=' expected near"
local IF = "write if c then return a else return b end"
local BLOCK = "a block ends with 'end': if a then ... end, while a do ... end, "
  .. "function f(x) ... end"

-- `x--` at the end of a line: Lua takes the end as a comment, so the parser notices it later.
local DECREMENT = "[%w_%]]%-%-%s*;?%s*$"

-- LuaJIT's messages where a block has no end.
local UNBALANCED = "near '?[},<]"

-- Each entry has a pattern of LuaJIT's message, a pattern of the line, the name of the construct
-- that Lua lacks, and advice; `newer`: Lua 5.3 or 5.4 has the construct. The first entry that fits
-- is taken. A pattern has at most one repetition without a bound, so that a long line costs little.
local ENTRIES = {
  { "near '[<=>]", "^[<=>][<=>][<=>][<=>][<=>][<=>][<=>]", "conflict marker of a merge",
    "keep one of the two versions, and remove the lines with <<<<<<<, ======= and >>>>>>>" },
  { "near '!'", "!==?", "operator '!='", "write a ~= b" },
  { "near '!'", "!", "operator '!'", "write not a" },
  { "near '&'", "&&", "operator '&&'", "write a and b" },
  { "near '&'", "&", "operator '&'", NO_BITS .. "x % 4096 for x & 4095", newer = true },
  { "near '|'", "||", "operator '||'", "write a or b" },
  { "near '|'", "|", "operator '|'", NO_BITS .. NO_COMMON, newer = true },
  { "near '/'", "^%s*//", "comments with '//'", "a comment begins with --" },
  { "near '[/*]'", "/%*", "comments with '/*'", "a comment begins with --" },
  { "near '/'", "//", "operator '//'", "write math.floor(a / b)", newer = true },
  { "near '#'", "^%s*#", "comments with '#'", "a comment begins with --" },
  { "near '<'", "<<", "operator '<<'", "write x * 2^n", newer = true },
  { "near '<'", "<%a+>", "attribute of a variable", "write local x = 1", newer = true },
  { "near '>'", "<>", "operator '<>'", "write a ~= b" },
  { "near '>'", ">>", "operator '>>'", "write math.floor(x / 2^n)", newer = true },
  { "near '~'", "[%w_%])]%s*~", "operator '~'", NO_BITS .. NO_COMMON, newer = true },
  { "near '~'", "~", "operator '~' before a number", NO_BITS .. "-1 - x for ~x", newer = true },
  { "near '%?'", "%?", "operator '?:'", "write `condition and a or b`, or an if" },
  { ASSIGN .. " '%+'", "%+%+", "operator '++'", "write x = x + 1" },
  { "near '%+'", "%+%+", "operator '++'", "write x = x + 1" },
  { ASSIGN, DECREMENT, "operator '--', which begins a comment", "write x = x - 1" },
  { "near '%*'", "%*%*", "operator '**'", "write x ^ 2" },
  { ASSIGN .. " '[-+*/%%^]'", "[-+*/%%^]=", "operator that assigns, such as '+='",
    "write x = x + 1" },
  { "near '='", "===", "operator '==='", "write a == b" },
  { "near '='", ":=", "operator ':='", "write local x = 1" },
  { "near '='", "=>", "function with '=>'", "write function(x) return x end" },
  { "'[td][ho]%w*' expected near '='", "=", "assignment in a condition", "write a == b" },
  { "near '`'", "`", "string in backticks", "write \"a\"" },
  { "near 'AND'", "AND", "word 'AND'", "write and" },
  { "near 'OR'", "OR", "word 'OR'", "write or" },
  { "near 'elif'", "elif", "word 'elif'", "write elseif" },
  { "near 'elsif'", "elsif", "word 'elsif'", "write elseif" },
  { " expected", "%f[%w_]continue%f[^%w_]", "word 'continue'",
    "write the rest of the loop's body inside an if" },
  { " expected", "%f[%w_]switch%f[^%w_]", "word 'switch'",
    "write if a == 1 then ... elseif a == 2 then ... else ... end, or a table of the cases" },
  { ASSIGN, "^%s*unless%s", "word 'unless'", "write if not a then ... end" },
  { ASSIGN, "^%s*try%f[^%w_]", "word 'try'",
    "a policy catches no errors: the last good policy stays live" },
  { ASSIGN, "^%s*def%s", "word 'def'", "write local function f(x) ... end" },
  { ASSIGN, "^%s*import%s", "word 'import'", "a policy is one file: put everything into it" },
  { ASSIGN, "^%s*%a[%w_]*%s+%a[%w_]*%s*=", "word such as 'var' before a variable",
    "write local x = 1" },
  { " near ", "%)%s*{", "braces around statements", BLOCK },
  { "near '{'", "{", "braces around statements", BLOCK },
  { " near ", "^%s*}", "braces around statements", BLOCK },
  { " near ", "[{,]%s*[%w_]+%s*:%s", "':' between a key and its value", "write { key = value }" },
  { "near ':'", ":%s*$", "':' before statements", BLOCK },
  { "'<name>' expected near", "%f[%w_]if%f[^%w_].*:%s*", "':' before statements", BLOCK },
  { "'then' expected near ':'", ":", "':' before statements", BLOCK },
  { "near '%['", "%[", "list in '[' and ']'", "write { 1, 2 }" },
  { " near '[KMGT]i?B?'$", "%d%s+[KMGT]i?B?%f[^%w_]", "unit behind a number",
    "write sizes as 4 * loam.MiB" },
  { "near 'local'", "%f[%w_]numa%s*=%s*local", "value 'local' without quotes",
    "write numa = \"local\"" },
  { "^unexpected symbol near 'if'", "[=%w(,]%s*if%s", "'if' that is a value", IF },
  { ASSIGN .. " 'else'", "%sthen%s+[%w_.]+%s+else", "branch that is a value", IF },
  { ASSIGN .. " 'end'", "%selse%s+[%w_.]+%s+end", "branch that is a value", IF },
  { "^'then' expected near 'in'", "%sin%s", "operator 'in'",
    "make a table with the values as keys, and write values[x]" },
  { "^'then' expected near 'is'", "%sis%s", "operator 'is'", "write a == b" },
}

local IN_TABLE = "put values into one table: local use = { large = loam.host {}, "
  .. "small = loam.host {} }"

-- Advice for messages that need no line: a pattern of LuaJIT's message, and what to write.
local ADVICE = {
  { "^unexpected symbol near 'then'", "write the rest of the condition before 'then'" },
  { "^unexpected symbol near ';'", "remove this ';'" },
  { ASSIGN, "a statement is an assignment (a = b) or a call (f(a)); '==' compares" },
  { "^'end' expected .*near '?<eof>", "the file ends early: was it saved whole?" },
  { "^malformed number near '%d[%d.]*[KMGTkmgt][iI]?[bB]?'", "write sizes as 4 * loam.MiB" },
  { "^'<eof>' expected near 'end'", "remove this 'end', or one above it" },
  { "^'<eof>' expected near '%l", "return is the last statement of a file: write this above it" },
  { "^malformed number near '%d+_[%d_]*'", "write the digits without _" },
  { " has more than %d+ local variables", IN_TABLE }, { " has more than %d+ upvalues", IN_TABLE },
  { "^chunk has too many syntax levels",
    "write the cases one after the other, or a loop over a table" },
  { "^unfinished long ", "close [[ with ]]" },
  { "^unfinished string near '\"", "end the string with \" on its line" },
  { "^unfinished string near ''", "end the string with ' on its line" },
  { "^'end' expected .*near '?return",
    "return ends a block: write end before this line, or join the strategies: a:or_else(b)" },
  { "^'end' expected .*near '?::", "return ends a block: write do return b end before a label" },
}

-- Empties the strings of a line.
local function bare(line)
  return (gsub(gsub(sub(line, 1, MAX_LINE), "\"[^\"]*\"", "\"\""), "'[^']*'", "''"))
end

-- Returns the operator at the end of a line that needs something behind it, or nil.
local function open_end(line)
  line = gsub(line, "%-%-.*$", "")
  local word = string.match(line, "%f[%w_](%l+)%s*$")
  if word == "and" or word == "or" or word == "not" then return word end
  return string.match(line, "([<>~=]=?)%s*$") or string.match(line, "([-+*/%%^])%s*$")
end

-- Returns the line `number` of a text, the last line before it that is not empty, and the number of
-- that one.
local function lines_at(text, number)
  local n, before, before_number = 0, "", nil
  for line in string.gmatch(text, "([^\n]*)\n") do
    n = n + 1
    if n == number then return bare(line), bare(before), before_number end
    if find(line, "%S") then before, before_number = line, n end
  end
  return "", bare(before), before_number
end

-- Returns the entry for a message and a line, or nil.
local function entry_for(message, line)
  for _, entry in ipairs(ENTRIES) do
    if find(message, entry[1]) and find(line, entry[2]) then return entry end
  end
  return nil
end

-- Long words of Lua, which are not taken for a name that is a little different.
local WORDS = { "function", "return", "local", "elseif", "while", "repeat", "until", "break" }

-- Returns whether a misspelt word is the fault for certain: it is named by the message, it is the
-- first word of the line, it stands before the word that the message names, or it is called.
local function is_blamed(word, meant, message, line)
  local near = string.match(message, "near '([%w_]+)'")
  return find(message, "'" .. word .. "'", 1, true) or find(line, "^%s*" .. word .. "%f[^%w_]")
    or near and find(line, "%f[%w_]" .. word .. "%s+" .. near .. "%f[^%w_]")
    or meant == "function" and find(line, "%f[%w_]" .. word .. "%s*%(")
end

-- Returns the word of Lua that a word of the line misspells, and whether that is the fault for
-- certain; nil: none does. A name behind `local` is no misspelt word.
local function misspelt(message, line)
  for word in string.gmatch(line, "%f[%w_]%l%l%l%l%l+%f[^%w_]") do
    local meant = diag.suggest(word, WORDS)
    local is_name = find(line, "local%s+" .. word .. "%f[^%w_]")
    if meant and meant ~= word and not is_name then
      return meant, is_blamed(word, meant, message, line)
    end
  end
  return nil
end

-- Words of Lua behind which a table does not go on.
local ENDS_TABLE = { ["return"] = true, ["end"] = true, ["local"] = true, ["if"] = true,
                     ["for"] = true, ["then"] = true, ["do"] = true, ["function"] = true }

local function lacks_comma(message)
  local word = string.match(message, "^'}' expected .*near '?([%w_\"][^']*)")
  return find(message, "^'}' expected near ''") or word and not ENDS_TABLE[word]
end

-- Writes what the parser calls by names of its own in words.
local function in_words(message)
  message = gsub(message, "near '<eof>'", "near the end of the file")
  message = gsub(message, "'<eof>' expected", "the end of the file expected")
  return (gsub(message, "^'?<name>'?", "a name"))
end

---@return string|nil what to write, by LuaJIT's message alone
function not_lua.advise(message)
  for _, advice in ipairs(ADVICE) do
    if find(message, advice[1]) then return advice[2] end
  end
  return nil
end

-- Explains a syntax error of a policy, if its line has what another language would write. Changes
-- the reason and the suggestion of the diagnostic, and its line where the parser noticed the fault
-- only on a later line.
---@param d loam.Diagnostic
---@param text string the text of the policy
function not_lua.explain(d, text)
  if d.class ~= "syntax" or not d.line then return end
  local line, before, before_number = lines_at(text, d.line)
  local code = gsub(line, "%-%-.*$", "") -- without a comment
  local meant, is_certain = misspelt(d.reason, code)
  local entry = entry_for(d.reason, line)
  local is_decrement = find(before, DECREMENT) and not find(before, "^%s*%-%-")
  if not entry and (is_decrement or find(before, "%)%s*{%s*}?%s*$") or find(before, ":%s*$")) then
    entry = entry_for(d.reason, before)
    d.line = entry and before_number or d.line
  end
  if entry then
    local lua = entry.newer and "Lua 5.1" or "Lua"
    d.reason, d.suggestion = format("%s has no %s (%s)", lua, entry[3], d.reason), entry[4]
  elseif find(d.reason, "^unexpected symbol near ") and open_end(before) then
    d.reason = format("nothing follows '%s' (%s on line %d)", open_end(before), d.reason, d.line)
    d.line, d.suggestion = before_number, "write the rest of the expression"
  elseif find(d.reason, UNBALANCED) and find(text, "%f[%w_]else[ \t]+if%f[^%w_]") then
    d.suggestion = "write elseif: each `else if` needs an 'end' of its own"
  elseif typography.advise(code) then
    d.suggestion = typography.advise(code)
  elseif lacks_comma(d.reason) and not is_certain then
    d.suggestion = "write a comma between the entries of a table"
  elseif is_certain or meant and not d.suggestion then
    d.suggestion = "did you mean '" .. meant .. "'?"
  end
  d.reason = in_words(d.reason)
end

return not_lua
