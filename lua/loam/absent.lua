-- absent - names of Lua that a policy does not have, and what to do instead.

local diag = require("loam.diag")

local absent = {}

local HELPERS = "patterns can run away; ask req.tag:under\"a.b\", :is\"a.b\", :glob\"a.*\" or "
  .. ":part(1)"

local INSTEAD = {
  print = "error(text) stops the load and shows the text; loam explain shows a decision",
  pcall = "a fault refuses the policy and the last good one stays live: nothing needs catching",
  require = "a policy is one file, read whole",
  setmetatable = "plain tables and functions do",
  coroutine = "plain functions do",
  os = "a policy sees its request only: time and environment are not among it",
  io = "a policy is one file; put its tables in it",
  debug = "loam explain and loam plan show how a policy decides",
  ffi = "a policy is plain Lua",
  bit = "use % and math.floor",
  rawget = "index the table: t.key",
  rawset = "assign to the table: t.key = value",
  rawequal = "use ==",
  ["math.random"] = "the same request has to get the same answer; guard = N guards one block in N",
  ["string.find"] = HELPERS,
  ["string.dump"] = "a policy is one file, read whole",
}

local SAME = {
  xpcall = "pcall", dofile = "require", loadfile = "require", loadstring = "require",
  load = "require", module = "require", package = "require", getmetatable = "setmetatable",
  newproxy = "setmetatable", getfenv = "setmetatable", setfenv = "setmetatable", jit = "ffi",
  collectgarbage = "ffi", rawlen = "rawget", ["math.randomseed"] = "math.random",
  ["string.match"] = "string.find", ["string.gmatch"] = "string.find",
  ["string.gsub"] = "string.find",
}

---@param name string such as "print" or "math.random"
---@param known string[] the names there are, without what precedes a dot
---@return string reason, string|nil suggestion
function absent.words(name, known)
  local instead = INSTEAD[SAME[name] or name]
  if instead then return "a policy does not have '" .. name .. "'", instead end
  local nearest = diag.suggest(string.match(name, "[^.]*$"), known)
  return "there is no '" .. name .. "'",
    nearest and "did you mean '" .. string.gsub(name, "[^.]*$", "") .. nearest .. "'?" or nil
end

return absent
