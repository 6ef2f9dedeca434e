-- lua_layers.lua - the modules of lua/loam require one another in one direction, folder by folder,
-- without a cycle, and each module's table has the name of its file.
--
-- The comment at the top of lua/loam/driver.lua lists the folders, lowest first, and the folders
-- that each of them uses; this check reads that list.
package.path = "tests/check/?.lua;" .. package.path
local files = require("_files")

local DRIVER = "lua/loam/driver.lua"

-- The modules at the top of lua/loam, which C calls, and the folders whose modules they require.
local TOP = {
  driver = { report = true, compiler = true, questions = true },
  command = { report = true, command = true },
}

-- Returns { [folder] = { [used folder] = true } } and the list of the folders in their order.
local function read_folders()
  local uses, order = {}, {}
  files.each_line(DRIVER, function(line, number)
    local folder, rest = line:match("^%-%-   (%l+)  +(.*)$")
    if not folder then return end
    order[#order + 1], uses[folder] = folder, {}
    for used in (rest:match("%. Uses ([%l, ]+)%.$") or ""):gmatch("%l+") do
      if not uses[used] or used == folder then
        files.complain(DRIVER .. ":" .. number, "%s uses %s, which is not listed before it", folder,
          used)
      end
      uses[folder][used] = true
    end
  end)
  return uses, order
end

-- Returns the folder of a module, or its name at the top: "loam.command.verbs.run" gives "command".
local function folder_of(module)
  return module:match("^loam%.(%l+)%.") or module:match("^loam%.(.*)")
end

-- Modules that C provides for require(), and the only folders that may require them.
local FROM_C = {
  ["loam.core"] = { language = true, compiler = true, questions = true },
  ["loam.command.native"] = { command = true },
}

local function check_require(where, own, module, allowed)
  local given = FROM_C[module]
  if given then
    if not given[own] then files.complain(where, "%s is not for lua/loam/%s", module, own) end
    return
  end
  local other = folder_of(module)
  if other ~= own and not allowed[other] then
    files.complain(where, "lua/loam/%s must not use %s (see the top of %s)", own, module, DRIVER)
  end
end

-- Collects the modules that a module requires while it loads. A require inside a function runs
-- later, so it cannot be part of a cycle, but its direction must be right too.
local function check_requires(path, module, uses, edges)
  local own = path:match("^lua/loam/(%l+)/")
  local allowed = own and uses[own] or TOP[module:match("^loam%.(.*)")]
  if not allowed then return files.complain(path, "its folder is not listed in %s", DRIVER) end
  edges[module] = {}
  files.each_line(path, function(line, number)
    for required in line:gmatch('require[(,] ?"(loam%.[%w_.]+)"') do
      check_require(path .. ":" .. number, own or module, required, allowed)
      if line:find("^local") then table.insert(edges[module], required) end
    end
  end)
end

local function check_cycles(edges)
  local state = {}
  local function visit(module, trail)
    if state[module] == "done" or not edges[module] then return end
    if state[module] then return files.complain(module, "requires itself:%s", trail) end
    state[module] = "open"
    for _, required in ipairs(edges[module]) do visit(required, trail .. " " .. required) end
    state[module] = "done"
  end
  for module in pairs(edges) do visit(module, "") end
end

local function check_name(path, name)
  local text = files.read(path)
  if not text:find("^%-%- " .. name .. "%.lua %- ") then
    files.complain(path .. ":1", "must open with -- %s.lua - and a description", name)
  end
  local is_made = text:find("\nlocal " .. name .. " = ", 1, true)
  local is_returned = text:find("\nreturn " .. name .. "\n$")
    or text:find("\nreturn setmetatable%(" .. name .. ", ")
  if not is_made or not is_returned then
    files.complain(path, "its table is not called %s", name)
  end
end

local uses, order = read_folders()
if #order < 2 then files.complain(DRIVER, "it lists no folders") end
local modules, edges = files.find("lua/loam", "lua"), {}
for _, path in ipairs(modules) do
  local module = path:match("^lua/(.*)%.lua$"):gsub("/", ".")
  check_requires(path, module, uses, edges)
  check_name(path, module:match("[^.]+$"))
end
check_cycles(edges)
files.finish(("%d modules of Lua in %d folders: %s"):format(#modules, #order,
  table.concat(order, ", ")))
