-- site - the strings of a call-site, and what a policy has asked about them.
--
-- Strings are concrete while tracing, but a policy seldom needs a whole one: it asks "is this
-- under tensor?". Each question is an observation, remembered with its answer. All replays of one
-- site ask a sequence of observations that their answers alone determine, so two sites with the
-- same answers have the same plan (classes.lua). A text is an FFI struct that turns every use into
-- an observation; uses that need the whole string observe its value.

local ffi = require("ffi")
local here = require("loam.here")
local tag = require("loam.tag")

local site = {}

local where       -- the site being traced: tag, file, func, module, line
local answers     -- observation -> answer
local asked       -- { observation, answer, ... } in order
local listener    -- told of every question, also repeated ones

local readers = {} -- text -> { name, read = function(where) -> string }

function site.begin(now)
  where, answers, asked = now, {}, {}
end

---@return table observations and answers, alternating, in the order they were first made
function site.asked() return asked end

-- `listen(observation, answer)` is called for each question until it is set to nil.
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

-- ---- observations: interned by what, of which text, about what

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

-- What a tag would have to be for the question to be answered otherwise (literals.lua).
local function literal(how, text, about)
  return text.root == "tag" and { how = how, about = about, part = text.part } or nil
end

-- A question that tag.lua answers, `name` being how a policy writes it.
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

-- Which key of a table the text is; false for none.
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

---@return string|nil the whole string behind a text; nil for what is not a text
function site.value(text)
  return readers[text] and ask(value_of(text, "value"))
end

function site.is_text(value) return readers[value] ~= nil end

-- What `keys[text]` gives.
function site.lookup(keys, text)
  local word = ask(key_in(text, keys))
  if word then return rawget(keys, word) end
  return nil
end

-- `root` and `part` say which part of which field it is, where a field can be made to have it.
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

-- Methods of strings at large, on the whole string; set by sandbox.lua.
local string_method

function site.connect(method) string_method = method end

-- Comparing with anything but a string is false, as for strings.
local function equals(a, b)
  if rawequal(a, b) then return true end
  local text, other = a, b
  if not readers[text] then text, other = b, a end
  if readers[other] then other = site.value(other) end
  return type(other) == "string" and ask(equal(text, other))
end

-- An operator on the whole strings; what it refuses is refused at the policy's line.
local function on_values(operator)
  return function(a, b)
    local ok, result = pcall(operator, plain(a), plain(b))
    if ok then return result end
    if type(result) ~= "string" or here.is_final(result) then error(result, 0) end
    return here.refuse("type", (string.gsub(result, "^[^:]*:%d+: ", "")))
  end
end

new = ffi.metatype("struct {}", {
  __eq = equals,
  __lt = on_values(function(a, b) return a < b end),
  __le = on_values(function(a, b) return a <= b end),
  __concat = on_values(function(a, b) return a .. b end),
  __len = function(a) return #plain(a) end,
  __add = on_values(function(a, b) return a + b end),
  __sub = on_values(function(a, b) return a - b end),
  __mul = on_values(function(a, b) return a * b end),
  __div = on_values(function(a, b) return a / b end),
  __mod = on_values(function(a, b) return a % b end),
  __pow = on_values(function(a, b) return a ^ b end),
  __unm = on_values(function(a) return -a end),
  __tostring = plain,
  __index = function(_, name) return methods[name] or string_method(name) end,
  __newindex = function() return here.refuse("write", "a string cannot be written to") end,
  __call = function() return here.refuse("type", "a string is not a function") end,
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

-- How an answered question reads in a report: its words, and whether they hold.
function site.describe(observation, answer)
  if type(answer) == "boolean" then return observation.text, answer end
  if type(answer) == "number" then return observation.name .. " == " .. answer, true end
  return string.format("%s == %q", observation.name, answer), true
end

return site
