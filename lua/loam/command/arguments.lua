-- arguments.lua - reads the arguments of a verb, as the verb's own table describes them.
--
-- A verb lists its options as { name, VALUE or nil, meaning, kind =, many =, required =, short =,
-- pattern =, default =, least =, most = } and its other arguments as `takes`. An option with a
-- pattern may lack its value: a word behind it is the value if it has the pattern; else the value
-- is the default.
-- Arguments that do not fit are a usage error: a thrown table with `usage = true` and `words`.

local diag = require("loam.report.diag")

local arguments = {}

local FLAG_HELP = { "help", nil, "shows this help" }

-- ---- failing

-- Raises a usage error with this message.
---@param words string
function arguments.misused(words)
  error({ usage = true, words = words }, 0)
end

-- Raises a usage error if a path is `-`, for a verb that reads no standard input.
function arguments.refuse_input(path)
  if path == "-" then arguments.misused("it reads no standard input; name a file") end
end

-- Returns an argument as text that is safe to show on a terminal.
function arguments.plain(text)
  return require("loam.command.terminal").plain(text)
end

local function option_names(verb)
  local names = {}
  for i, option in ipairs(verb.options) do names[i] = option[1] end
  names[#names + 1] = "help"
  return names
end

local function find(verb, name)
  if name == "help" then return FLAG_HELP end
  for _, option in ipairs(verb.options) do
    if option[1] == name then return option end
  end
  local nearest = diag.suggest(name, option_names(verb))
  return arguments.misused(("unknown option '--%s'%s"):format(name,
    nearest and "; did you mean '--" .. nearest .. "'?" or ""))
end

-- ---- values

local KIND = {}

local TAG_MAX = 255     -- bytes of a tag
local SIZE_MAX = 2 ^ 47 -- bytes of an address space
local NUMBER_MAX = 2 ^ 31 - 1
local TIME_MAX = 24 * 3600 * 1000 -- ms

function KIND.text(option, value)
  if value:find("\n", 1, true) then
    arguments.misused(("--%s: the value must be one line of text"):format(option[1]))
  end
  return value
end

-- A string of a call-site in a question about a policy. The name of a program or of a source file
-- may have several lines.
function KIND.site(_, value) return value end

function KIND.tag(option, value)
  if #value > TAG_MAX then
    arguments.misused(("--%s: the value has %d bytes; a tag has at most %d"):format(option[1],
      #value, TAG_MAX))
  end
  return value
end

-- A tag that names memory to be moved, in a request to a program, which is one line. An empty
-- value, such as that of a shell's variable that is not set, never means all memory.
function KIND.some_tag(option, value)
  if value == "" then arguments.misused(("--%s: the tag is empty"):format(option[1])) end
  return KIND.text(option, KIND.tag(option, value))
end

function KIND.path(option, value)
  if value == "" then arguments.misused(("--%s: the path is empty"):format(option[1])) end
  return KIND.text(option, value)
end

-- The path of a policy, for a verb that reads no standard input.
function KIND.policy(option, value)
  arguments.refuse_input(value)
  return KIND.path(option, value)
end

function KIND.size(option, value)
  local units = require("loam.command.units")
  local n, broken = units.parse(value)
  if broken then
    arguments.misused(("--%s: '%s' is no whole number of bytes; write %d"):format(option[1], value,
      math.ceil(broken)))
  elseif not n then
    arguments.misused(("--%s: '%s' is not a size; write 4096, 64KiB, 4MiB or 1.5GiB"):format(
      option[1], value))
  elseif n > SIZE_MAX then
    arguments.misused(("--%s: %s is more than %s, the largest size"):format(option[1], value,
      units.bytes(SIZE_MAX)))
  elseif n < (option.least or 0) then
    arguments.misused(("--%s: %s is less than %d, the least"):format(option[1], value,
      option.least))
  end
  return n
end

-- An interval of samples, "off", or the default.
function KIND.stacks(option, value)
  if value == "" or value == "off" then return value end
  local n, most = KIND.size(option, value), 2 ^ 40
  if n < 1 or n > most then
    arguments.misused(("--%s: %s is not from 1 to %d bytes"):format(option[1], value, most))
  end
  return n
end

function KIND.number(option, value)
  local least, most = option.least or 0, option.most or NUMBER_MAX
  local n = value:match("^-?%d+$") and #value <= 15 and tonumber(value)
  if not n or n < least or n > most then
    arguments.misused(("--%s: '%s' is not a whole number from %d to %d"):format(option[1], value,
      least, most))
  end
  return n
end

-- The free memory of a node or a device, as a query has it: its number and the bytes.
function KIND.free(option, value)
  local at, size = value:match("^(%d%d?)=(.+)$")
  if not at or tonumber(at) > 63 then
    arguments.misused(("--%s: '%s' is not N=SIZE, with N from 0 to 63; write 0=2GiB"):format(
      option[1], value))
  end
  return ("%d %d"):format(at, KIND.size(option, size))
end

function KIND.time(option, value)
  local units = require("loam.command.units")
  local ms = units.parse_time(value)
  if not ms then
    arguments.misused(("--%s: '%s' is not a time; write 60s, 500ms, 2m or 1h"):format(option[1],
      value))
  elseif ms > (option.most or TIME_MAX) then
    arguments.misused(("--%s: %s is more than %dh, the longest time"):format(option[1], value,
      (option.most or TIME_MAX) / 3600000))
  end
  return ms
end

function KIND.power(option, value)
  local n = KIND.size(option, value)
  if n < 1 or math.frexp(n) ~= 0.5 then
    arguments.misused(("--%s: %s is not a power of two; write 64, 4096 or 2MiB"):format(option[1],
      value))
  end
  return n
end

local function store(given, option, value)
  local name = option[1]
  if option.many then
    given[name] = given[name] or {}
    table.insert(given[name], value)
  elseif given[name] ~= nil then
    arguments.misused(("--%s is given twice"):format(name))
  else
    given[name] = value
  end
end

-- Returns the long form of a short option: "--output" for "-o", and "--output=FILE" for "-oFILE".
local function long_form(verb, word)
  for _, option in ipairs(verb.options) do
    if option.short and word:sub(2, 2) == option.short then
      return "--" .. option[1] .. (#word > 2 and "=" .. word:sub(3) or "")
    end
  end
  return arguments.misused(("unknown option '%s'"):format(word))
end

-- Reads the option at args[i]. Returns the index of its last word, and the option if it was given
-- without the value that it may have.
local function read_option(verb, args, i, given)
  local name, value = args[i]:match("^%-%-([^=]*)=?(.*)$")
  local has_value = args[i]:find("=", 1, true) ~= nil
  local option, open = find(verb, name), nil
  if not option[2] then
    if has_value then arguments.misused(("--%s takes no value"):format(name)) end
    store(given, option, true)
    return i
  end
  if not has_value and option.pattern and not (args[i + 1] or ""):find(option.pattern) then
    value, open = option.default, option
  elseif not has_value then
    i = i + 1
    value = args[i]
      or arguments.misused(("--%s needs a value: --%s %s"):format(name, name, option[2]))
  end
  store(given, option, KIND[option.kind or "text"](option, value))
  return i, open
end

-- ---- a verb's arguments

-- Checks the first word of a command. Behind an option without its value, a word such as 1e9 is
-- meant as the value.
local function check_command(word, open)
  if open and tonumber(word) and word:find("^[%d.]") then KIND[open.kind](open, word) end
end

-- Raises a usage error about a required option that is missing. It may stand among the words of the
-- command.
local function miss(verb, given, option)
  local words = ("--%s %s is missing"):format(option[1], option[2])
  for i = 2, verb.takes and verb.takes.rest and #given or 0 do
    if given[i]:match("^[^=]*") == "--" .. option[1] then
      words = ("%s before %s: all words from '%s' on are the command"):format(words,
        verb.takes.name, given[1])
    end
  end
  arguments.misused(words)
end

-- Raises a usage error about a node or a device whose free memory is given twice.
local function check_free(option, values)
  local seen = {}
  for _, value in ipairs(values or {}) do
    local at = value:match("^%d+")
    if seen[at] then
      arguments.misused(("--%s: number %s is given twice"):format(option[1], at))
    end
    seen[at] = true
  end
end

local function check_given(verb, given)
  local takes = verb.takes or { most = 0 }
  if given[1] == "" then arguments.misused(takes.name .. " is empty") end
  if #given < (takes.least or 0) then
    arguments.misused(("%s is missing"):format(takes.name or "an argument"))
  end
  if #given > (takes.most or math.huge) then
    arguments.misused(("'%s' is one argument too many"):format(given[(takes.most or 0) + 1]))
  end
  for _, option in ipairs(verb.options) do
    if option.required and given[option[1]] == nil then miss(verb, given, option) end
    if option.kind == "free" then check_free(option, given[option[1]]) end
  end
end

-- Reads all arguments of a verb. If the verb runs a command (`takes.rest`), the first argument that
-- is not an option and everything after it belong to that command.
---@param args string[]
---@return table given options by name, other arguments by position
function arguments.read(verb, args)
  local given, i, plain, open = {}, 1, false, nil
  local has_command = verb.takes ~= nil and verb.takes.rest == true
  while i <= #args do
    local word = args[i]
    if plain or word == "-" or word:sub(1, 1) ~= "-" then
      if has_command and not plain then check_command(word, open) end
      given[#given + 1] = word
      plain = plain or has_command
    elseif word == "--" then
      plain = true
    elseif word == "-h" then
      given.help = true
    else
      if word:sub(1, 2) ~= "--" then args[i] = long_form(verb, word) end
      i, open = read_option(verb, args, i, given)
    end
    i = i + 1
  end
  if not given.help then check_given(verb, given) end
  return given
end

-- ---- help

---@return boolean whether a verb has the option --json
function arguments.has_json(verb)
  for _, option in ipairs(verb.options) do
    if option[1] == "json" then return true end
  end
  return false
end

local UNITS = [[

A size is a number of bytes, or has a unit. Units count in powers of 1024: 4MiB,
4MB and 4M all mean 4,194,304 bytes.
]]

---@return string lines that explain the options
function arguments.help(verb)
  local rows, column, has_size = {}, 0, false
  for _, option in ipairs(verb.options) do
    rows[#rows + 1] = { "  --" .. option[1] .. (option[2] and " " .. option[2] or ""), option[3] }
    has_size = has_size or option.kind == "size" or option.kind == "power"
  end
  rows[#rows + 1] = { "  --help", FLAG_HELP[3] }
  for _, row in ipairs(rows) do column = math.max(column, #row[1]) end
  for i, row in ipairs(rows) do rows[i] = row[1] .. (" "):rep(column + 2 - #row[1]) .. row[2] end
  return table.concat(rows, "\n") .. "\n" .. (has_size and UNITS or "")
end

return arguments
