-- keys.lua - compares the keys of answers in JSON, as a manual lists them, with the schemas.
--
-- An entry begins with the name of a command, or with a word in capitals that other entries use.
-- Its further lines are indented. The keys of a command are the words of its entry, the words of
-- the entries that it names, and the keys of a command that it names with "the keys of COMMAND".
-- The test compares sets of names; it does not compare which object has a key.
local files = require("_files")
local json = require("loam.report.json")

local keys = {}

-- Keys that every answer has, which the manual lists at another place; and words of entries that
-- are not keys, such as types and words of sentences.
local common = { verb = true, version = true, ok = true, error = true }
local words = {}
for word in ("number text name pid n bytes from on and the options that policy gives it others "
  .. "true if tables changed during each of several copies"):gmatch("%S+") do
  words[word] = true
end

-- Parts of schemas that a manual describes in a sentence: a strategy has the options of the
-- language, and `stats` has the keys of `status` for a killed program.
local told = { strategy = true, last_words = true, strategy_use = true, tag_use = true,
  limit = true }

-- All entries of all blocks with this mark in a manual: name -> text.
local entries = {}

local function read(block)
  local name
  for _, line in ipairs(block.lines) do
    local begun, rest = line:match("^(%S+)%s+(.*)$")
    name = begun or name
    entries[name] = (begun and "" or entries[name] .. " ") .. (rest or line)
  end
end

local function add(found, name)
  local own = entries[name]:gsub("the keys of %l+", "")
  for word in own:gmatch("[%w_]+") do
    if entries[word] and word:match("^%u+$") then
      if not found[word] then
        found[word] = true
        add(found, word)
      end
    else
      found[word] = true
    end
  end
  local other = entries[name]:match("the keys of (%l+)")
  if other then add(found, other) end
end

-- Adds the names of all properties below a value to `found`, and returns it. Leaves out parts that
-- are in `told`, unless `whole` is true.
local function properties(value, found, whole)
  for key, inner in pairs(value) do
    if type(inner) == "table" and inner.type == "object" and told[key] and not whole then
      inner = nil
    elseif key == "properties" then
      for name in pairs(inner) do found[name] = true end
    end
    if type(inner) == "table" then properties(inner, found, whole) end
  end
  return found
end

local function missing(from, among, ignored)
  local list = {}
  for name in pairs(from) do
    local is_key = name:match("^[%l%d]") and not common[name] and not ignored[name]
    if is_key and not among[name] then list[#list + 1] = name end
  end
  table.sort(list)
  return #list > 0 and table.concat(list, " ")
end

-- Returns a text that names the keys in which the manual and the schema of a command differ.
local function fault_of(command)
  local manual = {}
  local path = ("lua/loam/command/schema/%s.json"):format(command)
  local schema = json.decode(files.read(path))
  add(manual, command)
  if schema["$defs"].refused then add(manual, "refused") end
  local whole = command == "status" or command == "ps"
  local lacking = missing(properties(schema, {}, whole), manual, {})
  local extra = missing(manual, properties(schema, {}, true), words)
  return (lacking and ("%s: the manual lacks the keys %s"):format(command, lacking))
    or (extra and ("%s: the schema has no keys %s"):format(command, extra))
end

-- Compares all entries of a manual; `list` has the blocks with the mark "keys".
function keys.fault(list)
  for _, block in ipairs(list) do read(block) end
  local faults = {}
  for name in pairs(entries) do
    if name:match("^%l+$") and name ~= "refused" then
      faults[#faults + 1] = fault_of(name) or nil
    end
  end
  table.sort(faults)
  return #faults > 0 and table.concat(faults, "\n") or nil
end

return keys
