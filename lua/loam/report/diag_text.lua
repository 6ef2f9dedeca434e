-- diag_text.lua - the text of diagnostics: LuaJIT's errors in words for operators, suggestions of
-- similar words, and the lines that a compiler prints.
--
-- diag.lua loads this module when the first diagnostic is made. It calls string functions by name,
-- never as methods: while a policy runs, the methods of strings are the sandbox's.

local missing = require("loam.report.missing")
local not_lua = require("loam.report.not_lua")
local diag = require("loam.report.diag")
local json = require("loam.report.json")

local concat = table.concat
local find, format, gsub, lower = string.find, string.format, string.gsub, string.lower
local match, sub = string.match, string.sub

local diag_text = {}

local MAX_SHOWN = 20   -- diagnostics rendered; of more than that only their number is shown
local MAX_SOURCE = 120 -- bytes of a source line quoted
local MAX_REASON = 600
local MAX_MESSAGE = 1000 -- bytes of LuaJIT's message that are looked at

local CHUNK = "policy" -- what LuaJIT calls the policy's chunk in its messages

-- ---- the nearest word

-- The number of edits that turn `a` into `b`: insert, delete, replace a byte, swap two neighbours.
-- (Damerau and Levenshtein's distance, in its restricted form, computed row by row.)
local function distance(a, b)
  local before, previous, current = {}, {}, {}
  for j = 0, #b do previous[j] = j end
  for i = 1, #a do
    current[0] = i
    for j = 1, #b do
      local same = sub(a, i, i) == sub(b, j, j)
      local replaced = previous[j - 1] + (same and 0 or 1)
      local least = math.min(previous[j] + 1, current[j - 1] + 1, replaced)
      if i > 1 and j > 1 and sub(a, i, i) == sub(b, j - 1, j - 1)
        and sub(a, i - 1, i - 1) == sub(b, j, j) then
        least = math.min(least, before[j - 2] + 1)
      end
      current[j] = least
    end
    before, previous, current = previous, current, before
  end
  return previous[#b]
end

---@param known string[]
---@return string|nil the word of `known` that is nearest to `word`; nil if none is near
function diag_text.suggest(word, known)
  if #word > 64 then return nil end
  local best, best_edits = nil, math.max(1, math.floor(#word / 3)) + 1
  for _, candidate in ipairs(known) do
    local edits = distance(lower(word), lower(candidate))
    if edits < best_edits and edits < #candidate then best, best_edits = candidate, edits end
  end
  return best
end

-- ---- names and operators that a policy does not have

diag_text.explain_missing = missing.explain
diag_text.suggest_by_text = missing.suggest_by_text
diag_text.explain_syntax = not_lua.explain

-- ---- LuaJIT's own errors, in the operator's words

local SYMBOLS = "the numbers of req are unknown while a policy is compiled"
local NOT_NUMBER = "write a number; nil means that the value was not set"
local CALL = "call the function: loam.pressure(), #loam.nodes(), loam.node(0).free"
local NOT_SET = "check that the value was set: a table gives nil for a key that it does not have"

local OF_COMPARISON = "write a < b and b < c for a < b < c, and not (a < b) for not a < b; "
  .. "req.zero is no number: write if req.zero then"

-- Tried in order: a pattern of LuaJIT's message, and the class, reason and suggestion of the
-- diagnostic. "%1" and "%2" stand for captures.
local TRANSLATIONS = {
  { "^'for' (%a+) ?%a* must be a number", "loop",
    "the %1 of a 'for' loop is not a plain number: a loop that depends on the request cannot be "
      .. "compiled",
    "loop over constants, or write the cases out as comparisons (req.size < 4096)" },
  { "^bad argument #(%d+) to '([^']+)' %(number expected, got cdata%)", "number",
    "argument %1 of %2 is a number of the request: " .. SYMBOLS,
    "compare the number (req.size < 4096); math.floor, ceil, abs, min and max accept it too" },
  { "^bad argument #(%d+) to '([^']+)' %(([^)]*)got cdata%)", "type",
    "argument %1 of %2 is a value of the request: " .. SYMBOLS,
    "use the value in a comparison, or ask req.tag:under, :is, :glob or :part" },
  { "^bad argument #(%d+) to '([^']+)' %((.-)%)", "argument", "argument %1 of %2: %3" },
  { "^attempt to call global '([^']+)' %(a nil value%)", "name",
    "there is no function '%1' in a policy" },
  { "^attempt to call method '([^']+)' %(a nil value%)", "name", "there is no method '%1' here",
    "a tag has under, is, glob and part; a strategy has or_else" },
  { "^attempt to call %a+ '([^']+)' %((a %a+) value%)", "type",
    "'%1' is %2 value, not a function" },
  { "^attempt to call (a table) value", "type", "%1 value is called as a function",
    "write pairs(t) or ipairs(t) for a loop over a table" },
  { "^attempt to call (an? %a+) value", "type", "%1 value is called as a function" },
  { "^attempt to index %a+ '([^']+)' %((a function) value%)", "type",
    "'%1' is %2 here, so it has no fields", CALL },
  { "^attempt to index %a+ '([^']+)' %((a nil) value%)", "nil",
    "'%1' is %2 value here, so it has no fields", NOT_SET },
  { "^attempt to index %a+ '([^']+)' %((an? %a+) value%)", "nil",
    "'%1' is %2 value here, so it has no fields" },
  { "^attempt to index (a nil) value", "nil", "%1 value has no fields", NOT_SET },
  { "^attempt to index (an? %a+) value", "nil", "%1 value has no fields" },
  { "^attempt to compare two (%a+) values", "compare", "comparing two %1 values",
    "write numbers on both sides" },
  { "^attempt to compare (boolean) with (%a+)", "compare", "comparing %1 with %2", OF_COMPARISON },
  { "^attempt to compare (number) with (boolean)", "compare", "comparing %1 with %2",
    OF_COMPARISON },
  { "^attempt to compare (%a+) with (function)", "compare", "comparing %1 with %2", CALL },
  { "^attempt to compare (function) with (%a+)", "compare", "comparing %1 with %2", CALL },
  { "^attempt to compare (%a+) with (%a+)", "compare", "comparing %1 with %2",
    "write numbers on both sides, sizes as 4 * loam.MiB; nil means that the value was not set" },
  { "^attempt to perform arithmetic on %a+ '([^']+)' %((an? %a+) value%)", "arithmetic",
    "'%1' is %2 value, not a number", NOT_NUMBER },
  { "^attempt to perform arithmetic on (an? %a+) value", "arithmetic",
    "%1 value is used as a number", NOT_NUMBER },
  { "^attempt to concatenate %a+ '([^']+)' %((an? %a+) value%)", "text",
    "'%1' is %2 value, not a string" },
  { "^attempt to concatenate (an? %a+) value", "text", "%1 value is used as a string" },
  { "^attempt to get length of %a+ '([^']+)' %((a function) value%)", "type",
    "'%1' is %2 and has no length", CALL },
  { "^attempt to get length of %a+ '([^']+)' %((an? %a+) value%)", "type",
    "'%1' is %2 value: it has no length" },
  { "^attempt to get length of (an? %a+) value", "type", "%1 value has no length" },
  { "^table index is (%a+)", "nil", "a table is indexed with %1" },
  { "^attempt to load .*chunk", "text", "the file is compiled Lua, not text",
    "give the Lua source" },
  { "stack overflow", "recursion", "functions call each other without end",
    "write the cases one after the other, without recursion" },
  { "^not enough memory", "memory", "the policy needs more memory than a load step may use",
    "look for data that grows; step_bytes of loam_config is the limit" },
  { "string length overflow", "memory", "a string grows without bound",
    "look for a loop that adds to a string" },
  { "^resulting string too large", "memory", "a string grows without bound",
    "look for a loop that adds to a string" },
  { "^assertion failed!$", "assert", "assertion failed" },
}

-- Patterns of the parser's messages. A message may quote a long piece of the policy's text. So a
-- pattern with a repetition begins with "^": it is then tried at one place of the message, and not
-- at each byte.
local SYNTAX = {
  " near '", " near <", "^chunk has too many", "^function at line %d+ has more than",
  "^main function has more", "^control structure too long", "^no loop to break",
  "^undefined label", "^<goto", "^duplicate label", "^cannot use '...'", "^code too long",
}

local function is_syntax(message)
  for _, pattern in ipairs(SYNTAX) do
    if find(message, pattern) then return true end
  end
  return false
end

local function fill(template, captures)
  return (gsub(template, "%%(%d)", function(n) return captures[tonumber(n)] or "" end))
end

local function translate(message)
  if is_syntax(message) then return "syntax", message, not_lua.advise(message) end
  for _, entry in ipairs(TRANSLATIONS) do
    local captures = { match(message, entry[1]) }
    if captures[1] then return entry[2], fill(entry[3], captures), entry[4] end
  end
  return "error", message, nil
end

-- Takes "chunk:line: " from the beginning of LuaJIT's message. For the policy's own chunk,
-- frame.diagnose has put CHUNK there.
local function split(message)
  local chunk, line, rest = match(message, "^([^\n:]-):(%d+): (.*)$")
  if not chunk then return nil, nil, message end
  return chunk, tonumber(line), rest
end

-- Makes a diagnostic from an error value that trusted code caught. An error that was raised outside
-- the policy's chunk is a fault of loam itself.
---@return loam.Diagnostic
function diag_text.from_error(value)
  if diag.is(value) then return value end
  if type(value) ~= "string" then
    return diag.new { class = "error", reason = "the policy raised an error whose value is a "
      .. type(value), suggestion = "give error() a string" }
  end
  local where, line, message = split(sub(value, 1, MAX_MESSAGE))
  if where and where ~= CHUNK then
    return diag.new { class = "internal", reason = "an error in loam itself: " .. value }
  end
  local class, reason, suggestion = translate(message)
  return diag.new { line = line, class = class, reason = reason, suggestion = suggestion }
end

-- ---- rendering

-- Makes text safe to show on a terminal: no byte of it is a control character.
local function plain(text, most)
  if #text > most then text = sub(text, 1, most) .. "..." end
  text = gsub(text, "\t", "  ")
  return (gsub(text, "[%c\127]", function(byte) return format("\\%03d", string.byte(byte)) end))
end

local function source_of(d, source_lines)
  local text = d.source or not d.file and d.line and source_lines and source_lines[d.line]
  text = text and match(text, "^.*%S") or ""
  return text ~= "" and not find(text, "%z") and text or nil -- text has no zero byte
end

local function add_led(out, led)
  for i, step in ipairs(led) do
    out[#out + 1] = format("  %s `%s` on line %d was %s", i == 1 and "led here:" or "         ",
      plain(step.condition, MAX_SOURCE), step.line or 0, tostring(step.holds))
  end
end

local function add(out, d, file_name, source_lines)
  local file = d.file or file_name or "policy"
  local at = d.line and file .. ":" .. d.line or file
  out[#out + 1] = format("%s: %s: %s", plain(at, MAX_REASON), d.class, plain(d.reason, MAX_REASON))
  local source = source_of(d, source_lines)
  if source and d.line then
    out[#out + 1] = format("%5d | %s", d.line, plain(source, MAX_SOURCE))
  end
  if d.led then add_led(out, d.led) end
  if d.suggestion then out[#out + 1] = "  hint: " .. plain(d.suggestion, MAX_REASON) end
end

-- Returns diagnostics in the form that compilers print, without a newline at the end.
---@param list loam.Diagnostic|loam.Diagnostic[]
---@param source_lines string[]|nil lines of the policy
function diag_text.render(list, file_name, source_lines)
  if diag.is(list) then list = { list } end
  local out = {}
  for i = 1, math.min(#list, MAX_SHOWN) do add(out, list[i], file_name, source_lines) end
  if #list > MAX_SHOWN then out[#out + 1] = format("and %d more", #list - MAX_SHOWN) end
  return concat(out, "\n")
end

-- Returns a diagnostic as the table that json.encode writes into an answer.
function diag_text.object(d, file_name, source_lines)
  local led
  if d.led and #d.led > 0 then
    led = json.array {}
    for i, step in ipairs(d.led) do
      led[i] = { line = step.line, condition = step.condition, holds = step.holds }
    end
  end
  return {
    file = d.file or file_name, line = d.line, class = d.class, reason = d.reason,
    source = source_of(d, source_lines), led = led, suggestion = d.suggestion,
  }
end

---@return string[] the lines of a text, for render and object
function diag_text.lines(text)
  local lines = {}
  text = gsub(text, "^\239\187\191", "") -- a byte order mark
  for line in string.gmatch(text .. "\n", "([^\n]*)\n") do
    lines[#lines + 1] = gsub(line, "\r$", "")
  end
  return lines
end

return diag_text
