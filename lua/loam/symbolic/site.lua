-- site.lua - the strings of a call-site, and what a policy has asked about them.
--
-- Strings are known while tracing, but a policy may only ask questions about them: "is this tag
-- under tensor?". Each question is an observation, which is remembered with its answer. Which
-- observations a replay makes depends only on the answers before, so two sites with equal answers
-- have one plan (compiler/site_classes.lua). A policy that computes with a string itself would have
-- a plan for each string: it is refused.
--
-- A text is an FFI struct that stands for one of these strings and turns every use of it into an
-- observation.

local ffi = require("ffi")
local frame = require("loam.report.frame")
local quoted = require("loam.report.lua_text").quoted
local tag = require("loam.symbolic.tag")

local site = {}

---@class loam.Observation a question about one string of a site
---@field ask fun(where: table): any the answer for a site
---@field how string "is", "under", "glob", "part" or "key"
---@field field string "tag", "file", "func" or "module"
---@field part integer|nil the question is about this part of the field
---@field about any a string; for "part" a number; for "key" a loam.Keys
---@field text string|nil the question as a policy writes it
---@field name string of the text

local where       -- the site being traced: tag, file, func, module, line
local answers     -- observation -> answer
local asked       -- { observation, answer, ... } in order
local listener    -- function(observation, answer), called for every question, repeated ones too
local answerer    -- function(observation) -> answer, in place of the site; nil: the site answers

local doubts = {} -- list of loam.Doubt, the question that was asked first in front

local readers = {} -- text -> { name, read = function(where) -> string, field, part }

---@class loam.Doubt a question that is probably a mistake
---@field line integer|nil where it was first asked
---@field class string of the warning
---@field reason string
---@field suggestion string

---@return loam.Doubt[]
function site.doubts() return doubts end

-- Sets the site (tag, file, func, module) that the next replays are for, without answers.
function site.begin(now)
  where, answers, asked = now, {}, {}
end

---@return table observations and answers, alternating, in the order they were first made
function site.asked() return asked end

-- Sets the function that answers all questions; nil: the site of site.begin answers them.
function site.connect_answers(answer) answerer = answer end

-- Sets the function that is called for each question; nil: none is called.
function site.listen(listen) listener = listen end

local function ask(observation)
  if answerer then return answerer(observation) end
  local answer = answers[observation]
  if answer == nil then
    answer = observation.ask(where)
    answers[observation] = answer
    asked[#asked + 1] = observation
    asked[#asked + 1] = answer
  end
  if listener then listener(observation, answer) end
  return answer
end

-- ---- observations: one object for each kind of question, text and argument

local function interned(make)
  local cache = {}
  return function(text, about)
    local row = cache[text]
    if not row then
      row = {}
      cache[text] = row
    end
    local found = row[about]
    if not found then
      found = make(readers[text], about)
      row[about] = found
    end
    return found
  end
end

local function observation_of(how, text, about, ask_where)
  return { how = how, field = text.field, part = text.part, about = about, name = text.name,
           ask = ask_where }
end

-- Returns why a question about the string `about` is probably a mistake, and what to write.
local function doubt_of(made, about)
  if string.find(about, "[*?]") then
    return "text", "compares * and ? as characters",
      string.format("%s:glob(%s)", made.name, quoted(about))
  elseif made.part or made.field ~= "tag" and made.field ~= "module" then
    return nil
  end
  if made.how == "is" and made.field == "tag" and about == "malloc" then
    return "tag", "is true only for code in no file, such as that of a JIT compiler",
      made.name .. ":under(\"malloc\") for all code"
  end
  local reason, meant = tag.doubt(made.field, about)
  if not reason then return nil end
  local text = made.text
  local from, to = string.find(text, quoted(about), 1, true)
  return "tag", reason,
    string.sub(text, 1, from - 1) .. quoted(meant) .. string.sub(text, to + 1)
end

local function add_doubt(class, reason, instead)
  doubts[#doubts + 1] = { line = frame.line(), class = class, reason = reason,
                          suggestion = "write " .. instead }
end

local function note_doubt(made, about)
  local class, reason, instead = doubt_of(made, about)
  if reason then add_doubt(class, made.text .. " " .. reason, instead) end
  return made
end

-- Notes a pattern with a list of cases, as a shell has it: `cache.[ab]` or `cache.{a,b}`. Names of
-- functions and files may have such characters.
local function note_cases(made, pattern)
  if made.field ~= "tag" and made.field ~= "module" then return made end
  local character = string.match(pattern, "[%[{]")
  if character then
    add_doubt("text", made.text .. " compares " .. character .. " as a character",
      ("a pattern for each case: %s:glob(\"a*\") or %s:glob(\"b*\")"):format(made.name, made.name))
  end
  return made
end

-- Notes once that a text is compared with a number: `req.tag:part(2) == 7` for `"7"`.
local note_number = interned(function(text, number)
  add_doubt("text", ("%s == %s compares a string with a number, so it is never true"):format(
    text.name, number), ("%s == \"%s\""):format(text.name, number))
  return true
end)

-- Notes once that a text is compared with nil. A part may be nil, and is no text then.
local note_nil = interned(function(text)
  add_doubt("text",
    text.name .. " == nil is never true, because a string that is not known is \"\"",
    text.name .. " == \"\"")
  return true
end)

-- Makes the observations that a function of tag.lua answers. `name` is the name of the function.
local function helper(name)
  local question = tag[name]
  return interned(function(text, about)
    local made = observation_of(name, text, about, function(at)
      return question(text.read(at), about)
    end)
    made.text = string.format("%s:%s(%s)", text.name, name, quoted(about))
    return (name == "glob" and note_cases or note_doubt)(made, about)
  end)
end

local helpers = { under = helper("under"), is = helper("is"), glob = helper("glob") }

local equal = interned(function(text, about)
  local made = observation_of("is", text, about, function(at) return text.read(at) == about end)
  made.text = string.format("%s == %s", text.name, quoted(about))
  return note_doubt(made, about)
end)

---@class loam.Keys the strings that are keys of a table
---@field words string[] sorted
---@field first table<string, string> word -> the first word that has an equal value

local NEGATIVE_ZERO = {} -- stands for -0, which is equal to 0 as a key, but not in arithmetic

local function keys_of(t)
  local keys, by_value = { words = {}, first = {} }, {}
  for word in next, t do
    if type(word) == "string" then keys.words[#keys.words + 1] = word end
  end
  table.sort(keys.words)
  for _, word in ipairs(keys.words) do
    local value = rawget(t, word)
    if type(value) == "number" and 1 / value == -math.huge then value = NEGATIVE_ZERO end
    local is_nan = value ~= value
    if not is_nan and by_value[value] == nil then by_value[value] = word end
    keys.first[word] = is_nan and word or by_value[value]
  end
  return keys
end

-- Notes a table whose keys are numbers alone, in which a text is looked up.
local function doubt_numbers(text, t)
  local least
  for key in next, t do
    if type(key) ~= "number" then return end
    least = math.min(key, least or key)
  end
  if not least then return end
  add_doubt("text", "the table that is indexed with " .. text.name .. " has numbers as keys, so it "
    .. "has no value for a string", ("the keys as strings: { [\"%s\"] = ... }"):format(least))
end

-- Observes which value the text has in a table. The answer is the first key with that value; false
-- if the text is no key. So keys with one value are one answer, and such tags one class.
local key_in = interned(function(text, t)
  local keys = keys_of(t)
  doubt_numbers(text, t)
  for _, word in ipairs(keys.words) do
    note_doubt({ name = text.name, field = text.field, part = text.part,
                 text = string.format("%s == %s", text.name, quoted(word)) }, word)
  end
  return observation_of("key", text, keys, function(at)
    return keys.first[text.read(at)] or false
  end)
end)

local has_part = interned(function(text, index)
  local made = observation_of("part", text, index, function(at)
    return tag.part(text.read(at), index) ~= nil
  end)
  made.text = string.format("%s:part(%d)", text.name, index)
  return made
end)

-- ---- texts

local new -- the metatype's constructor

function site.is_text(value) return readers[value] ~= nil end

---@return string how a policy writes this text: "req.tag"
function site.name(text) return readers[text].name end

-- Refuses a use that needs the whole string behind a text.
function site.refuse(text, what)
  local name = readers[text].name
  return frame.refuse("text",
    what .. " needs the text of " .. name .. ": a policy is compiled for all texts beforehand",
    "ask " .. name .. ":under, :is, :glob or :part, compare it with ==, or look it up in a table")
end

-- Returns the value of `t[text]`, for a table of the policy.
function site.lookup(t, text)
  local word = ask(key_in(text, t))
  if word then return rawget(t, word) end
  return nil
end

-- Makes a text. `read(at)` gives its string at a site: `field`, or the part number `part` of it.
local function make(name, read, of_field, part)
  local text = new()
  readers[text] = { name = name, read = read, field = of_field, part = part }
  return text
end

local parts = interned(function(text, index)
  local function read(at) return tag.part(text.read(at), index) or "" end
  return make(string.format("%s:part(%d)", text.name, index), read, text.field, index)
end)

local methods = {}

local LONGEST = 4096 -- bytes of a literal of core: LM_CLASS_TEXT_MAX in class_tree.h

-- Refuses a pattern that core does not take. A longer literal of another question is no string of
-- any site, so the question is left out.
local function check_length(name, about)
  if name ~= "glob" or #about <= LONGEST then return end
  frame.refuse("type", ":glob takes a pattern of at most " .. LONGEST .. " bytes, not " .. #about,
    "write a shorter pattern")
end

for name, observation in pairs(helpers) do
  methods[name] = function(text, about, ...)
    if readers[about] then return site.refuse(about, ":" .. name) end
    check_length(name, tag.argument(name, about, ...))
    return ask(observation(text, about))
  end
end

-- The part of a part is the part itself: it has no dots. "" has no parts.
local function part_of_part(text, index)
  if index > 1 or ask(equal(text, "")) then return nil end
  return text
end

function methods.part(text, index)
  tag.index(index)
  if readers[text].part then return part_of_part(text, index) end
  if not ask(has_part(text, index)) then return nil end
  return parts(text, index)
end

-- function(name) that refuses a method that strings do not have; sandbox.lua sets it.
local string_method

function site.connect(method) string_method = method end

local function other_method(text, name)
  string_method(name)
  return function() return site.refuse(text, ":" .. name) end
end

-- Compared with a value that is not a string, a text is unequal, as a string is. NaN is no key of
-- the notes.
local function equals(a, b)
  if rawequal(a, b) then return true end
  local text, other = a, b
  if not readers[text] then text, other = b, a end
  if readers[other] then return site.refuse(other, "a comparison with another string") end
  if type(other) == "number" and other == other then note_number(text, other) end
  if rawequal(other, nil) and not readers[text].part then note_nil(text, false) end
  return type(other) == "string" and ask(equal(text, other))
end

-- Makes the metamethod of an operator, which refuses the text on either side.
local function refused(operator)
  return function(a, b) return site.refuse(readers[a] and a or b, operator) end
end

new = ffi.metatype("struct {}", {
  __eq = equals,
  __lt = refused("< or >"), __le = refused("<= or >="),
  __concat = refused(".."), __len = refused("#"),
  __add = refused("+"), __sub = refused("-"), __mul = refused("*"), __div = refused("/"),
  __mod = refused("%"), __pow = refused("^"), __unm = refused("-"),
  __tostring = refused("tostring"),
  __index = function(text, name) return methods[name] or other_method(text, name) end,
  __newindex = function() return frame.refuse("write", "a string cannot be written to") end,
  __call = function() return frame.refuse("type", "a string is not a function") end,
})

-- ---- the strings of a request

local function field(name)
  return make("req." .. name, function(at) return at[name] or "" end, name)
end

site.texts = {
  tag = field("tag"), file = field("file"), func = field("func"), module = field("module"),
}

---@return string, boolean, boolean|nil the text of an answered question in a report; whether it
--- holds; and true if the text quotes the string of this site, so that other sites with the answer
--- have another text
function site.describe(observation, answer)
  if observation.how == "part" then return observation.text .. " ~= nil", answer end
  if observation.how ~= "key" then return observation.text, answer end
  if not answer then return observation.name .. " is a key of the table", false end
  local read = where[observation.field] or ""
  local word = observation.part and tag.part(read, observation.part) or read
  return string.format("%s == %s", observation.name, quoted(word)), true, true
end

return site
