-- options.lua - the options of each constructor, checked by type and against this machine.
--
-- Every check names the value that was wrong and the values that are possible. An option may be
-- well formed while this machine cannot serve it: a device is missing, or no huge pages are
-- reserved. That is not an error yet, because the strategy may have a fallback; the check returns
-- it as a reason.

local core = require("loam.core")
local diag = require("loam.report.diag")
local frame = require("loam.report.frame")
local ordered = require("loam.language.ordered")
local site = require("loam.symbolic.site")
local symbol = require("loam.symbolic.symbol")

local options = {}

local MAX_ALIGN = 2 ^ 30
local MAX_BYTES = 2 ^ 47
local MAX_NAME = 63
local MAX_DEVICES = 32 -- core's LM_DEVICES_MAX
local MAX_SHOWN = 60 -- bytes of a wrong string that a message quotes

local machine

-- The machine is examined at the first call, since that reads a dozen files.
---@return table core's description of this machine
function options.machine()
  machine = machine or core.machine()
  return machine
end

local asked -- { count, why, list } from core.devices()

-- Devices are looked for at the first call, since that starts their driver.
---@return integer count of devices, string|nil why this machine has none
function options.devices()
  if not asked then
    asked = { list = {} }
    asked.count, asked.why = core.devices()
    for n = 0, asked.count - 1 do asked.list[n + 1] = n end
  end
  return asked.count, asked.why
end

---@return string a message: the devices of this machine, or why it has none
function options.devices_text()
  local count, why = options.devices()
  if count == 0 then return "there is no device: " .. why end
  return "this machine has " .. (count == 1 and "device 0" or "devices 0-" .. count - 1)
end

-- Looks for devices again at the next call: specs change the machine.
function options.forget_devices() asked = nil end

---@return integer[] the numbers of this machine's devices
function options.device_list()
  options.devices()
  return asked.list
end

local function quoted(text)
  if #text <= MAX_SHOWN then return '"' .. text .. '"' end
  return '"' .. string.sub(text, 1, MAX_SHOWN) .. '..." (' .. #text .. " bytes)"
end

---@return string a wrong value as messages show it
function options.show(value)
  local kind = type(value)
  if kind == "string" then return quoted(value) end
  if kind == "number" or kind == "boolean" or kind == "nil" then return tostring(value) end
  if symbol.expression(value) then return "a number of the request" end
  if site.is_text(value) then return "a string of the request" end
  return "a " .. (kind == "cdata" and "64-bit integer" or kind)
end

-- Suggests the word of a list that is nearest to a wrong value; nil if none is near.
local function nearest(value, words)
  local word = type(value) == "string" and diag.suggest(value, words)
  return word and "did you mean \"" .. word .. "\"?" or nil
end

-- Refuses an option's value. `possible` says which values are possible: "true or false".
local function wrong(option, value, possible, suggestion)
  return frame.refuse("option", option .. " = " .. options.show(value) .. ": must be " .. possible,
    suggestion)
end

local function is_integer(value)
  return type(value) == "number" and value == math.floor(value) and math.abs(value) < 2 ^ 53
end

-- ---- the checks: each takes an option's name and value, and returns the value as core takes it;
-- then, if this machine cannot serve that value, the reason

local function boolean(option, value)
  if type(value) ~= "boolean" then wrong(option, value, "true or false") end
  return value
end

---@return string a name that can be shown on one line
function options.name(option, value)
  if type(value) ~= "string" or value == "" or #value > MAX_NAME or string.find(value, "%c") then
    wrong(option, value,
      "a string of 1 to " .. MAX_NAME .. " bytes without control characters")
  end
  return value
end

local function limit(option, value)
  if not is_integer(value) or value < 1 or value > MAX_BYTES then
    local has_fraction = type(value) == "number" and value > 1 and value < MAX_BYTES
    wrong(option, value, "a whole number of bytes from 1 to 2^47, such as 512 * loam.MiB",
      has_fraction and "write math.floor(…) around it" or symbol.size_advice(value))
  end
  return value
end

local function align(option, value)
  if type(value) ~= "number" or value < 1 or value > MAX_ALIGN or math.frexp(value) ~= 0.5 then
    wrong(option, value, "a power of two from 1 to 1 GiB, such as 64")
  end
  return value
end

local function guard(option, value)
  if value == true then return 1 end
  if value == false then return 0 end
  if not is_integer(value) or value < 1 or value >= 2 ^ 32 then
    wrong(option, value, "true, false, or N, from 1 to 2^32 - 1, to guard one block in N")
  end
  return value
end

local function has_node(n)
  for _, node in ipairs(options.machine().nodes) do
    if node == n then return true end
  end
  return false
end

local function node(option, value)
  if not is_integer(value) or value < 0 then
    wrong(option, value, "a node number, a whole number from 0")
  end
  if not has_node(value) then
    frame.refuse("machine", "node " .. value .. ": " .. core.absent_node(value))
  end
  return value
end

options.check_node = node

local function keys_of(t)
  local numbers, words = {}, {}
  for key in next, t do
    local into = type(key) == "number" and numbers or words
    into[#into + 1] = key
  end
  table.sort(numbers)
  return numbers, words
end

local NUMA = "\"local\", \"interleave\", a node, a list of nodes {0, 1}, a string of nodes "
  .. "as numactl's (\"0-3\", \"!1\", \"+0\", \"all\"), {prefer = 0} "
  .. "or {weights = {[0] = 3, [1] = 1}}"

-- Returns the nodes that a string names as numactl does. `possible` says which values the option
-- takes, for a string of another form.
local function string_of_nodes(option, value, possible)
  local nodes, why, is_malformed = core.parse_nodes(value)
  if is_malformed then
    wrong(option, value, possible, nearest(value, { "local", "interleave", "all" }))
  end
  if nodes then return nodes end
  return frame.refuse("machine", option .. " = " .. options.show(value) .. ": " .. why)
end

local function preferred(value)
  if type(value) ~= "string" then return node("numa.prefer", value) end
  local nodes = string_of_nodes("numa.prefer", value, "a node, or a string that names one: \"+0\"")
  if #nodes > 1 then
    frame.refuse("option", "numa.prefer = " .. options.show(value)
      .. ": must name one node, and names " .. table.concat(nodes, ", "))
  end
  return nodes[1]
end

local WEIGHTS = "a table of weights with node numbers as keys: {[0] = 3, [1] = 1}"

local function weights(value)
  if type(value) ~= "table" or next(value) == nil then wrong("numa.weights", value, WEIGHTS) end
  local out, nodes = {}, {}
  local numbers, words = keys_of(value)
  if words[1] ~= nil then wrong("numa.weights", value, WEIGHTS) end
  for _, n in ipairs(numbers) do
    node("numa", n)
    local weight = rawget(value, n)
    if not is_integer(weight) or weight < 1 or weight > 255 then
      wrong("weight of node " .. n, weight, "a whole number from 1 to 255")
    end
    nodes[#nodes + 1], out[n] = n, weight
  end
  return { mode = "weighted", nodes = nodes, weights = out }
end

local function list_of_nodes(value)
  local numbers, words = keys_of(value)
  if words[1] ~= nil or #numbers == 0 then wrong("numa", value, NUMA) end
  local nodes, seen = {}, {}
  for i, key in ipairs(numbers) do
    if key ~= i then
      wrong("numa", value, "a list of nodes without gaps: {0, 1}",
        "if these are weights, write numa = {weights = {[0] = 3, [1] = 1}}")
    end
    local n = node("numa", rawget(value, i))
    if seen[n] then
      frame.refuse("option", "numa lists node " .. n .. " twice",
        "name each node once; {weights = {[0] = 3, [1] = 1}} gives one node more than others")
    end
    nodes[#nodes + 1], seen[n] = n, true
  end
  table.sort(nodes)
  return { mode = "bind", nodes = nodes }
end

local function numa(option, value)
  if value == "local" then return { mode = value } end
  options.machine() -- makes core read its list of nodes again, over which "interleave" goes
  if value == "interleave" then return { mode = value } end
  if type(value) == "number" then return { mode = "bind", nodes = { node(option, value) } } end
  if type(value) == "string" then
    return { mode = "bind", nodes = string_of_nodes(option, value, NUMA) }
  end
  if type(value) ~= "table" then wrong(option, value, NUMA) end
  local _, words = keys_of(value)
  if #words == 0 then return list_of_nodes(value) end
  if #words == 1 and words[1] == "prefer" and rawget(value, 1) == nil then
    return { mode = "prefer", nodes = { preferred(value.prefer) } }
  end
  if #words == 1 and words[1] == "weights" and rawget(value, 1) == nil then
    return weights(value.weights)
  end
  for _, word in ipairs(words) do
    if word ~= "prefer" and word ~= "weights" then
      frame.refuse_word("option", "numa has no " .. (type(word) == "string" and "'" .. word .. "'"
        or options.show(word)), word, { "prefer", "weights" })
    end
  end
  return wrong(option, value, NUMA)
end

local function huge(option, value)
  if value == false then return "never" end
  if value == "thp" then return "thp" end
  if value ~= "2MiB" and value ~= "1GiB" then
    wrong(option, value, "false, \"thp\", \"2MiB\" or \"1GiB\"",
      nearest(value, { "thp", "2MiB", "1GiB" }))
  end
  local pages = options.machine().hugepages[value]
  if not pages then return value, "this machine has no " .. value .. " huge pages" end
  if pages == 0 then
    local where = value == "2MiB" and "sysctl vm.nr_hugepages=N"
      or "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"
    return value, "no " .. value .. " huge pages are reserved (" .. where .. " reserves them)"
  end
  return value
end

-- Shared memory has the pages of a file, which cannot be reserved huge pages.
local function file_huge(option, value)
  if value == "2MiB" or value == "1GiB" then
    wrong(option, value, "false or \"thp\" for shared memory")
  end
  return huge(option, value)
end

local MAX_DIR = 255

local function dir(option, value)
  if type(value) ~= "string" or #value > MAX_DIR or not string.find(value, "^/%C*$") then
    wrong(option, value, "the absolute path of a folder, of at most " .. MAX_DIR .. " bytes")
  end
  local why = core.folder(value)
  return value, why and "dir " .. options.show(value) .. ": " .. why
end

local function one_of(...)
  local allowed = { ... }
  local words = "\"" .. table.concat(allowed, "\", \"", 1, #allowed - 1) .. "\" or \""
    .. allowed[#allowed] .. "\""
  return function(option, value)
    for _, word in ipairs(allowed) do
      if value == word then return value end
    end
    return wrong(option, value, words, nearest(value, allowed))
  end
end

local function device_id(option, value)
  if value == "current" then return value end
  if not is_integer(value) or value < 0 or value >= MAX_DEVICES then
    wrong(option, value,
      "a device number from 0 to " .. MAX_DEVICES - 1 .. ", or \"current\"")
  end
  local count = options.devices()
  if count > 0 and value >= count then
    return value, "device " .. value .. ": " .. options.devices_text()
  end
  return value
end

-- ---- the options of each kind

local KINDS = {
  host = { align = align, numa = numa, huge = huge, zero = boolean, prefault = boolean,
           lock = boolean, guard = guard },
  system = {},
  handler = {},
  deny = {},
  pinned = { mapped = boolean, portable = boolean, write_combined = boolean, numa = numa },
  device = { id = device_id, pool = one_of("cache", "chunks", "driver", "none", "sleep") },
  managed = { id = device_id, prefer = device_id },
  shared = { align = align, numa = numa, huge = file_huge, zero = boolean, prefault = boolean,
             lock = boolean },
  file = { dir = dir, align = align, zero = boolean },
}

-- The option that a kind requires, and an example of it.
local NEEDED = { file = { "dir", "write loam.file{ dir = \"/var/tmp\" }" } }

local NEEDS_DEVICE = { pinned = true, device = true, managed = true }

---@return boolean whether memory of a kind needs a GPU
function options.needs_device(kind) return NEEDS_DEVICE[kind] == true end

-- Returns the reason why this machine has no memory of a kind at all; nil if it has some.
local function absent(kind)
  if not NEEDS_DEVICE[kind] then return nil end
  local count, why = options.devices()
  return count == 0 and kind .. " memory needs a GPU: " .. why or nil
end

local ORDER = { "dir", "align", "numa", "huge", "zero", "prefault", "lock", "guard", "mapped",
                "portable", "write_combined", "id", "pool", "prefer", "limit", "soft", "shared",
                "name" }

for _, checks in pairs(KINDS) do
  checks.name, checks.limit, checks.soft, checks.shared = options.name, limit, limit, options.name
end

local function known(kind)
  local names = {}
  for _, option in ipairs(ORDER) do
    if KINDS[kind][option] then names[#names + 1] = option end
  end
  return names
end

---@return string[] the names of the options that `loam.KIND{…}` takes
function options.names(kind) return known(kind) end

-- A soft limit tells the host that a limit is near, so it needs a limit.
local function check_soft(soft, hard)
  if not hard then
    frame.refuse("option", "soft = " .. soft .. ": there is no limit",
      "give the strategy a limit, which is the most bytes that it may have")
  elseif soft > hard then
    frame.refuse("option", ("soft = %d: must be at most the limit, %d"):format(soft, hard))
  end
end

-- What processes share is a limit, so a shared limit needs one.
local function check_shared(name, hard)
  if hard then return end
  frame.refuse("option", "shared = " .. options.show(name) .. ": there is no limit to share",
    "give the strategy a limit, which is the most bytes that all processes may have together")
end

-- Checks the table of options that a policy gave to `loam.KIND{…}`. Returns the values by option,
-- as core takes them, and the reason if this machine cannot serve them.
function options.check(kind, given)
  local checks, values, reason = KINDS[kind], {}, absent(kind)
  for option in ordered.pairs(given, false) do
    if type(option) ~= "string" or not checks[option] then
      local what = "loam." .. kind .. " has no option " .. options.show(option)
      frame.refuse_word("option", what, option, known(kind))
    end
  end
  local needed = NEEDED[kind]
  if needed and rawget(given, needed[1]) == nil then
    frame.refuse("option", "loam." .. kind .. " needs " .. needed[1], needed[2])
  end
  for _, option in ipairs(ORDER) do
    local value = rawget(given, option)
    if value ~= nil then
      local why
      values[option], why = checks[option](option, value)
      reason = reason or why
    end
  end
  if values.soft then check_soft(values.soft, values.limit) end
  if values.shared then check_shared(values.shared, values.limit) end
  return values, reason
end

---@return string[] the names of all options, in the order in which names and reports use them
function options.order() return ORDER end

return options
