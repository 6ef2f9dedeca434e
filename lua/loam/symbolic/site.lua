-- site.lua - the strings of a call-site, and what a policy has asked about them.
--
-- Strings are known while tracing, but a policy seldom needs a whole string: it asks "is this tag
-- under tensor?". Each such question is an observation, which is remembered with its answer. Which
-- observations a replay makes depends only on the answers before, so two sites with equal answers
-- have one plan (compiler/site_classes.lua).
--
-- A text is an FFI struct that stands for one of these strings and turns every use of it into an
-- observation. A use that needs the whole string observes the string itself.

local ffi = require("ffi")
local frame = require("loam.report.frame")
local tag = require("loam.symbolic.tag")

local site = {}

local where       -- the site being traced: tag, file, func, module, line
local answers     -- observation -> answer
local asked       -- { observation, answer, ... } in order
local listener    -- function(observation, answer), called for every question, repeated ones too

local readers = {} -- text -> { name, read = function(where) -> string }

-- Sets the site (tag, file, func, module, line) that the next replays are for, without answers.
function site.begin(now)
  where, answers, asked = now, {}, {}
end

---@return table observations and answers, alternating, in the order they were first made
function site.asked() return asked end

-- Sets the function that is called for each question; nil: none is called.
function site.listen(listen) listener = listen end

local function ask(observation)
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

local value_of = interned(function(text)
  return { ask = text.read, name = text.name }
end)

-- What the question says about tags that would give another answer (compiler/tag_literals.lua).
local function literal(how, text, about)
  return text.root == "tag" and { how = how, about = about, part = text.part } or nil
end

-- An observation that a function of tag.lua answers. `name` is the name of the function.
local function helper(name)
  local question = tag[name]
  return interned(function(text, about)
    return {
      ask = function(at) return question(text.read(at), about) end,
      text = string.format("%s:%s(%q)", text.name, name, about),
      literal = literal(name, text, about),
    }
  end)
end

local helpers = { under = helper("under"), is = helper("is"), glob = helper("glob") }

local equal = interned(function(text, about)
  return {
    ask = function(at) return text.read(at) == about end,
    text = string.format("%s == %q", text.name, about),
    literal = literal("is", text, about),
  }
end)

-- Observes which key of a table the text is; the answer is false if it is none.
local key_in = interned(function(text, keys)
  return {
    ask = function(at)
      local word = text.read(at)
      return rawget(keys, word) ~= nil and word
    end,
    name = text.name,
    text = "[" .. text.name .. "] in its table",
    literal = literal("key", text, keys),
  }
end)

local has_part = interned(function(text, index)
  return {
    ask = function(at) return tag.part(text.read(at), index) ~= nil end,
    text = string.format("%s:part(%d)", text.name, index),
    literal = literal("part", text, index),
  }
end)

-- ---- texts

local new -- the metatype's constructor

---@return string|nil the whole string behind a text; nil if `text` is not a text
function site.value(text)
  return readers[text] and ask(value_of(text, "value"))
end

function site.is_text(value) return readers[value] ~= nil end

---@return string how a policy writes this text: "req.tag"
function site.name(text) return readers[text].name end

-- Returns the value of `keys[text]`, for a table of the policy.
function site.lookup(keys, text)
  local word = ask(key_in(text, keys))
  if word then return rawget(keys, word) end
  return nil
end

-- Makes a text. `read(where)` gives its string at a site. If it is the field `root` of the request,
-- or the part number `part` of that field, these two say so.
local function make(name, read, root, part)
  local text = new()
  readers[text] = { name = name, read = read, root = root, part = part }
  return text
end

local parts = interned(function(text, index)
  local function read(at) return tag.part(text.read(at), index) end
  return make(string.format("%s:part(%d)", text.name, index), read,
    not text.part and text.root or nil, index)
end)

local function plain(value)
  return readers[value] and site.value(value) or value
end

local methods = {}

for name, observation in pairs(helpers) do
  methods[name] = function(text, about)
    return ask(observation(text, tag.argument(name, plain(about))))
  end
end

function methods.part(text, index)
  tag.index(index)
  if not ask(has_part(text, index)) then return nil end
  return parts(text, index)
end

-- function(name) that gives the method of ordinary strings; sandbox.lua sets it.
local string_method

function site.connect(method) string_method = method end

-- Compared with a value that is not a string, a text is unequal, as a string is.
local function equals(a, b)
  if rawequal(a, b) then return true end
  local text, other = a, b
  if not readers[text] then text, other = b, a end
  if readers[other] then other = site.value(other) end
  return type(other) == "string" and ask(equal(text, other))
end

local function shown(value)
  if readers[value] then return readers[value].name end
  if type(value) == "string" then return string.format("%q", value) end
  return type(value) == "number" and tostring(value) or "a " .. type(value)
end

local function refuse_operator(sign, a, b)
  return frame.refuse("type", string.format("%s %s %s: the operator does not take a %s and a %s",
    shown(a), sign, shown(b), type(plain(a)), type(plain(b))),
    "write strings on both sides, or numbers on both sides")
end

-- Makes the metamethod of an operator, which works on the whole strings. Raises its errors at the
-- policy's line.
local function on_values(sign, operator)
  return function(a, b)
    local ok, result = pcall(operator, plain(a), plain(b))
    if ok then return result end
    if type(result) ~= "string" or frame.is_final(result) then error(result, 0) end
    return refuse_operator(sign, a, b)
  end
end

-- -req.tag calls its metamethod with the text as both operands.
local function negated(text)
  local number = tonumber(plain(text))
  return number and -number
    or frame.refuse("type", "-" .. shown(text) .. ": the operator does not take a string")
end

new = ffi.metatype("struct {}", {
  __eq = equals,
  __lt = on_values("<", function(a, b) return a < b end),
  __le = on_values("<=", function(a, b) return a <= b end),
  __concat = on_values("..", function(a, b) return a .. b end),
  __len = function(a) return #plain(a) end,
  __add = on_values("+", function(a, b) return a + b end),
  __sub = on_values("-", function(a, b) return a - b end),
  __mul = on_values("*", function(a, b) return a * b end),
  __div = on_values("/", function(a, b) return a / b end),
  __mod = on_values("%", function(a, b) return a % b end),
  __pow = on_values("^", function(a, b) return a ^ b end),
  __unm = negated,
  __tostring = plain,
  __index = function(_, name) return methods[name] or string_method(name) end,
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

local line = {
  ask = function(at) return at.line or 0 end,
  name = "req.line",
}

---@return number the line of the site, observed
function site.line() return ask(line) end

---@return string, boolean the text of an answered question in a report, and whether it holds
function site.describe(observation, answer)
  if type(answer) == "boolean" then return observation.text, answer end
  if type(answer) == "number" then return observation.name .. " == " .. answer, true end
  return string.format("%s == %q", observation.name, answer), true
end

return site
