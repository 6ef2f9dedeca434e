-- missing.lua - names of Lua that a policy does not have, and what to write instead.

local diag = require("loam.report.diag")
local typography = require("loam.report.typography")

local missing = {}

local HELPERS = "a pattern can take too long; write req.tag:under\"a.b\", :is\"a.b\", :glob\"a.*\" "
  .. "or :part(1), or a table of strings: { \"a\", \"b\" }"

local INSTEAD = {
  print = "error(text) stops the load and shows the text; loam explain shows a decision",
  pcall = "remove it: after an error the policy is refused and the last good one stays live",
  require = "a policy is one file; put everything into it",
  setmetatable = "use plain tables and functions",
  coroutine = "use plain functions",
  os = "a policy knows its request only, not the time or the environment",
  io = "a policy is one file; put its tables into it",
  debug = "loam explain and loam plan show how a policy decides",
  ffi = "use plain Lua",
  bit = "write x % 4096 for the low bits and math.floor(x / 4096) for the high bits",
  rawget = "index the table: t.key",
  rawset = "assign to the table: t.key = value",
  rawequal = "use ==",
  null = "write nil",
  True = "write true",
  False = "write false",
  ["math.random"] = "the same request has to get the same answer; guard = N guards one block in N",
  ["string.find"] = HELPERS,
  ["string.dump"] = "a policy is one file; put everything into it",
  ["table.unpack"] = "write unpack(t)",
  ["table.pack"] = "write { ... } above pick, and select(i, ...) in it",
  ["table.getn"] = "write #t",
  ["table.foreach"] = "write for key, value in pairs(t) do ... end",
  ["table.foreachi"] = "write for i, value in ipairs(t) do ... end",
  ["table.move"] = "copy the entries in a loop, above pick",
  ["math.pow"] = "write x ^ y",
  ["math.log10"] = "write math.log(x) / math.log(10)",
  ["math.maxinteger"] = "write math.huge",
  ["math.tointeger"] = "write math.floor(x)",
  ["math.type"] = "write x == math.floor(x) to ask whether x is a whole number",
  utf8 = "a policy is Lua 5.1: write byte sequences as they stand in the text",
  _G = "write the name alone; local variables serve the whole file",
  _VERSION = "a policy is Lua 5.1, as LuaJIT has it",
}

-- Names whose advice is in INSTEAD under another name.
local ADVICE_OF = {
  xpcall = "pcall", dofile = "require", loadfile = "require", loadstring = "require",
  None = "null", NULL = "null", undefined = "null", TRUE = "True", FALSE = "False",
  bit32 = "bit", _ENV = "_G", warn = "print",
  load = "require", module = "require", package = "require", getmetatable = "setmetatable",
  newproxy = "setmetatable", getfenv = "setmetatable", setfenv = "setmetatable", jit = "ffi",
  collectgarbage = "ffi", rawlen = "rawget", ["math.randomseed"] = "math.random",
  ["string.match"] = "string.find", ["string.gmatch"] = "string.find",
  ["string.gsub"] = "string.find",
}

-- Names that stand in a table: the name with its table is the advice.
local WHOLE = {
  KiB = "loam.KiB", MiB = "loam.MiB", GiB = "loam.GiB", TiB = "loam.TiB", host = "loam.host",
  policy = "loam.policy", deny = "loam.deny", tag = "req.tag", size = "req.size",
  align = "req.align", zero = "req.zero", live = "req.live",
  req = "pick = function(req), so that the request has this name",
  got = "function(req, got), so that the strategy has this name",
}

---@param name string such as "print" or "math.random"
---@param known string[] the names that exist, without the library before a dot
---@return string reason, string|nil suggestion
function missing.explain(name, known)
  local instead = INSTEAD[ADVICE_OF[name] or name]
  if instead then return "a policy does not have '" .. name .. "'", instead end
  local character = typography.advise(name)
  if character then return "there is no '" .. name .. "'", character end
  if WHOLE[name] then return "there is no '" .. name .. "'", "write " .. WHOLE[name] end
  local library, word = string.match(name, "^(.*%.)([^.]*)$")
  local nearest = diag.suggest(word or name, known)
  return "there is no '" .. name .. "'",
    nearest and "did you mean '" .. (library or "") .. nearest .. "'?" or nil
end

-- Returns the names of the local variables that a text declares, and their first lines by name.
local function locals_of(text)
  local names, lines, number = {}, {}, 0
  for line in string.gmatch(text, "([^\n]*)\n") do
    number = number + 1
    line = string.gsub(line, "%f[%w_]function%s+", "")
    for name in string.gmatch(line, "%f[%w_]local%s+([%a_][%w_]*)") do
      if not lines[name] then names[#names + 1], lines[name] = name, number end
    end
  end
  return names, lines
end

-- Better advice for a line: a pattern of the reason, a pattern of the line, and what to write.
local BY_LINE = {
  { "not have 'require'$", "require%s*%(?%s*[\"']loam[\"']", "remove it: a policy has loam without "
    .. "require" },
  { "not have 'require'$", "require%s*%(?%s*[\"']bit[\"']", INSTEAD.bit },
  { " builds a table$", "{%s*%.%.%.%s*}", "write select(i, ...) for i = 1, select(\"#\", ...)" },
}

-- Returns the advice of BY_LINE for a diagnostic, or nil.
local function advice_by_line(d, text)
  local number = 0
  for line in string.gmatch(text, "([^\n]*)\n") do
    number = number + 1
    for _, advice in ipairs(number == d.line and BY_LINE or {}) do
      if string.find(d.reason, advice[1]) and string.find(line, advice[2]) then return advice[3] end
    end
  end
  return nil
end

-- Improves the suggestion of diagnostic `d` by the text of the policy: by what its line has, or by
-- the local variables, for a name that the policy does not have.
---@param text string the text of the policy
function missing.suggest_by_text(d, text)
  d.suggestion = advice_by_line(d, text) or d.suggestion
  local name = string.match(d.reason, "^there is no '([%w_]+)'$")
  if d.class ~= "name" or d.suggestion or not name then return end
  local names, lines = locals_of(text)
  local nearest = diag.suggest(name, names)
  if lines[name] then
    d.suggestion = "line " .. lines[name] .. " declares '" .. name
      .. "': a local variable is known behind its line, to the end of its block"
  elseif nearest then
    d.suggestion = "did you mean '" .. nearest .. "'?"
  end
end

return missing
