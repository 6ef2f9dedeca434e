-- editor_spec.lua - the files for editors (policies/editor) name all words of the language and no
-- others, and luacheck with these files finds mistakes in policies.

require("support")
local dsl = require("loam.language.dsl")
local options = require("loam.language.options")
local request = require("loam.symbolic.request")
local sandbox = require("loam.language.sandbox")

local FOLDER = "policies/editor/"

local function read(path)
  local file = assert(io.open(path))
  local text = file:read("*a")
  file:close()
  return text
end

local function sorted(set)
  local names = {}
  for name in next, set do names[#names + 1] = name end
  table.sort(names)
  return names
end

local function names_in(text, ...)
  local set = {}
  for _, pattern in ipairs { ... } do
    for name in text:gmatch(pattern) do set[name] = true end
  end
  return sorted(set)
end

-- Returns the names of the fields that a class in loam.lua declares itself.
local function fields_of(meta, class)
  local body = assert(meta:match("%-%-%-@class loam%." .. class .. "[: ][^\n]*\n(.-)\n\n")
    or meta:match("%-%-%-@class loam%." .. class .. "\n(.-)\n\n"), class)
  local set = {}
  for name in body:gmatch("%-%-%-@field ([%w_]+)") do set[name] = true end
  return set
end

describe("the definitions for lua-language-server", function()
  local meta = read(FOLDER .. "loam.lua")

  it("are a file of Lua", function() assert.is_truthy(loadstring(meta)) end)

  it("name each word of loam", function()
    assert.same(sorted(dsl.loam), names_in(meta, "\nfunction loam%.([%w_]+)", "\nloam%.([%w_]+) ="))
  end)

  it("name each field of the request", function()
    local fields = {}
    for _, name in ipairs(request.fields()) do fields[name] = true end
    assert.same(sorted(fields), sorted(fields_of(meta, "request")))
  end)

  it("name each option of each constructor", function()
    for kind, class in pairs { host = "host_options", shared = "shared_options", system = "options",
      file = "file_options", device = "device_options", managed = "managed_options",
      pinned = "pinned_options", deny = "options" } do
      local named = fields_of(meta, class)
      for name in pairs(fields_of(meta, "options")) do named[name] = true end
      local known = {}
      for _, name in ipairs(options.names(kind)) do known[name] = true end
      assert.same(sorted(known), sorted(named), kind)
    end
  end)
end)

describe("the standard for luacheck", function()
  local rc = setmetatable({ stds = {} }, { __index = _G })
  setfenv(assert(loadfile(FOLDER .. "luacheckrc")), rc)()

  it("names each global of a policy, and the members of its tables", function()
    local env = sandbox.new(dsl.loam)
    local std = rc.stds[rc.std].read_globals
    assert.same(sandbox.names(env), sorted(std))
    for _, name in ipairs { "loam", "math", "string", "table" } do
      assert.same(sorted(env[name]), sorted(std[name].fields), name)
    end
  end)

  local function luacheck(text)
    local path = os.tmpname()
    local file = assert(io.open(path, "w"))
    file:write(text)
    file:close()
    local out = assert(io.popen(("luacheck --no-color --codes --no-cache --config %sluacheckrc %s; "
      .. "echo status=$?"):format(FOLDER, path)))
    local said = out:read("*a")
    out:close()
    os.remove(path)
    return said
  end

  local function is_missing()
    if os.execute("command -v luacheck > /dev/null") == 0 then return false end
    pending("luacheck is not installed")
    return true
  end

  it("accepts the policies that loam brings", function()
    if is_missing() then return end
    local out = assert(io.popen(("luacheck --no-color --no-cache --config %sluacheckrc "
      .. "policies/*.lua; echo status=$?"):format(FOLDER)))
    local said = out:read("*a")
    out:close()
    assert.is_truthy(said:find("status=0", 1, true), said)
  end)

  it("finds words that a policy does not have", function()
    if is_missing() then return end
    local wrong = { ["loam.hots {}"] = "hots", ["print(1)"] = "print", ["os.exit()"] = "os",
      ["math.random()"] = "random", ["loam.KiB = 1"] = "KiB" }
    for text, word in pairs(wrong) do
      local line = text:find("=") and text or "local _ = " .. text
      local said = luacheck("local x = loam.host {}\n" .. line
        .. "\nreturn loam.policy { pick = x }\n")
      assert.is_truthy(said:find("status=1", 1, true) and said:find(word, 1, true), said)
    end
  end)
end)
