-- profile.lua - a profile of memory as data, from which each format is written.
--
-- A profile has samples. A sample has a stack of locations, the outermost first, and one number for
-- each type of sample, such as `inuse_space`. A location is a place in the program: lines of source
-- code, an address in a mapped file, or both. The frame of a tag has a function alone. The words
-- are those of pprof's profile.proto, and so is the law of a location: its first line is the
-- innermost function, and each further line is the function into which the line before it was
-- inlined.
--
-- Numbers are doubles, so a number is exact up to 2^53, which is 9 PB.

local profile = {}

---@class loam.ProfileType
---@field type string such as "inuse_space"
---@field unit string "bytes" or "count"

---@class loam.ProfileFunction
---@field id integer its position in the list `functions`
---@field name string
---@field system_name string|nil the name as the linker knows it; nil: it is `name`
---@field file string|nil
---@field line integer|nil where the function begins
---@field kind string|nil "tag", "strategy", "python" or "native"; pprof files do not have it

---@class loam.ProfileMapping
---@field id integer
---@field from number the first address
---@field to number the address after the last one
---@field offset number|nil where the mapping begins in its file
---@field file string|nil
---@field build_id string|nil in hexadecimal
---@field has_functions boolean|nil whether the locations of the mapping have functions already
---@field has_files boolean|nil whether these functions have files
---@field has_lines boolean|nil whether the locations have line numbers

---@class loam.ProfileLine
---@field func loam.ProfileFunction
---@field line integer|nil

---@class loam.ProfileLocation
---@field id integer
---@field lines loam.ProfileLine[] empty: only the address is known
---@field address number|nil
---@field mapping loam.ProfileMapping|nil

---@class loam.ProfileLabel
---@field key string
---@field text string|nil
---@field number number|nil
---@field unit string|nil the unit of `number`

---@class loam.ProfileSample
---@field stack loam.ProfileLocation[] the outermost location first
---@field values number[] one for each type of the profile
---@field labels loam.ProfileLabel[]
---@field before number[]|nil in a difference: the values of the base

---@class loam.Profile
---@field types loam.ProfileType[]
---@field default integer the position of the type that is shown first
---@field samples loam.ProfileSample[]
---@field functions loam.ProfileFunction[]
---@field locations loam.ProfileLocation[]
---@field mappings loam.ProfileMapping[]
---@field comments string[]
---@field title string|nil one line that says what the profile shows
---@field time_ns number|nil Unix time of the profile
---@field duration_ns number|nil
---@field period_type loam.ProfileType|nil the unit of `period`
---@field period number|nil the mean distance between two samples; nil: nothing was left out
---@field is_difference boolean|nil

-- The types of a profile of memory, in the order that readers of heap profiles expect.
profile.MEMORY = {
  { type = "alloc_objects", unit = "count" }, { type = "alloc_space", unit = "bytes" },
  { type = "inuse_objects", unit = "count" }, { type = "inuse_space", unit = "bytes" },
}

-- Makes an empty profile, which shows its last type first.
---@param types loam.ProfileType[]|nil nil: profile.MEMORY
---@return loam.Profile
function profile.new(types)
  local made = {
    types = types or profile.MEMORY, samples = {}, functions = {}, locations = {},
    mappings = {}, comments = {}, known = {},
  }
  made.default = #made.types
  return made
end

-- Returns the position of a type of samples; nil if the profile has no such type.
---@return integer|nil
function profile.type_index(made, name)
  for i, kind in ipairs(made.types) do
    if kind.type == name then return i end
  end
  return nil
end

-- Returns the names of the types of samples, separated by commas.
---@return string
function profile.type_names(made)
  local names = {}
  for i, kind in ipairs(made.types) do names[i] = kind.type end
  return table.concat(names, ", ")
end

-- ---- what samples consist of

-- Returns the entry of `list` that was made with this key. If there is none, adds `entry` with the
-- next id.
local function intern(made, list, key, entry)
  local found = made.known[key]
  if found then return found end
  entry.id = #list + 1
  list[entry.id] = entry
  made.known[key] = entry
  return entry
end

-- Joins the parts of a key. A part may be any text, so its length comes first.
local function key_of(...)
  local parts = {}
  for i = 1, select("#", ...) do
    local part = select(i, ...)
    local text = part == nil and "" or type(part) == "number" and ("%.17g"):format(part)
      or tostring(part)
    parts[i] = #text .. ":" .. text
  end
  return table.concat(parts)
end

-- Adds a function, or returns the equal one that the profile has.
---@param entry table the members of loam.ProfileFunction, without `id`
---@return loam.ProfileFunction
function profile.add_function(made, entry)
  return intern(made, made.functions,
    "f" .. key_of(entry.name, entry.system_name, entry.file, entry.line), entry)
end

-- Adds a mapping, or returns the equal one that the profile has.
---@param entry table the members of loam.ProfileMapping, without `id`
---@return loam.ProfileMapping
function profile.add_mapping(made, entry)
  return intern(made, made.mappings,
    "m" .. key_of(entry.from, entry.to, entry.offset, entry.file, entry.build_id), entry)
end

-- Adds a location, or returns the equal one that the profile has.
---@param entry table the members of loam.ProfileLocation, without `id`
---@return loam.ProfileLocation
function profile.add_location(made, entry)
  local parts = { entry.address or "", entry.mapping and entry.mapping.id or "" }
  for _, line in ipairs(entry.lines) do
    parts[#parts + 1] = line.func.id
    parts[#parts + 1] = line.line or ""
  end
  return intern(made, made.locations, "l" .. table.concat(parts, " "), entry)
end

-- Adds a location that is one function without an address, such as a tag or a frame of Python.
---@param entry table the members of loam.ProfileFunction, without `id`
---@param line integer|nil
---@return loam.ProfileLocation
function profile.add_frame(made, entry, line)
  local func = profile.add_function(made, entry)
  return profile.add_location(made, { lines = { { func = func, line = line } } })
end

-- ---- samples

-- Returns a key that is equal for equal stacks of one profile.
local function stack_key(stack)
  local parts = {}
  for i, location in ipairs(stack) do parts[i] = location.id end
  return "s" .. table.concat(parts, " ")
end

-- Returns a key that is equal for samples with equal stacks and labels.
local function sample_key(stack, labels)
  local key = stack_key(stack)
  for _, label in ipairs(labels) do
    key = key .. key_of(label.key, label.text, label.number, label.unit)
  end
  return key
end

-- Adds a sample. If the profile has a sample with an equal stack and equal labels, the values are
-- added to the values of that sample.
---@param stack loam.ProfileLocation[] the outermost location first
---@param values number[] one for each type
---@param labels loam.ProfileLabel[]|nil
---@return loam.ProfileSample
function profile.add(made, stack, values, labels)
  labels = labels or {}
  local key = sample_key(stack, labels)
  local sample = made.known[key]
  if not sample then
    sample = { stack = stack, values = { unpack(values) }, labels = labels }
    made.known[key] = sample
    made.samples[#made.samples + 1] = sample
    return sample
  end
  for i, value in ipairs(values) do sample.values[i] = sample.values[i] + value end
  return sample
end

-- Returns whether a list of numbers has no other number than 0.
---@param values number[]
function profile.is_zero(values)
  for _, value in ipairs(values) do
    if value ~= 0 then return false end
  end
  return true
end

-- Returns the sum of all samples of one type.
---@param index integer the position of the type
---@return number
function profile.total(made, index)
  local sum = 0
  for _, sample in ipairs(made.samples) do sum = sum + sample.values[index] end
  return sum
end

-- Returns how many stacks have a value of one type: samples with other labels may have one stack.
---@param index integer the position of the type
---@return integer
function profile.count_stacks(made, index)
  local count, known = 0, {}
  for _, sample in ipairs(made.samples) do
    local key = sample.values[index] ~= 0 and stack_key(sample.stack)
    if key and not known[key] then known[key], count = true, count + 1 end
  end
  return count
end

-- ---- frames

---@class loam.ProfileFrame
---@field name string
---@field func loam.ProfileFunction|nil nil: only the address is known
---@field line integer|nil
---@field location loam.ProfileLocation

local function address_frame(location)
  local mapping, at = location.mapping, location.address or 0
  local file = mapping and mapping.file and mapping.file:match("[^/]*$")
  local inside = mapping and at - mapping.from + (mapping.offset or 0) or at
  local name = file and ("%s+0x%x"):format(file, inside) or ("0x%x"):format(inside)
  return { name = name, location = location }
end

-- Returns the frames of a location, the outermost first: one for each line. A location whose
-- function is not known has one frame, which is named by its file and its address there. Asked
-- twice, the function returns the tables of the first time.
---@return loam.ProfileFrame[]
function profile.frames(location)
  if location.frames then return location.frames end
  local frames = {}
  for i = #location.lines, 1, -1 do
    local line = location.lines[i]
    frames[#frames + 1] = { name = line.func.name, func = line.func, line = line.line,
                            location = location }
  end
  if #frames == 0 then frames[1] = address_frame(location) end
  location.frames = frames
  return frames
end

-- Returns the frames of a whole stack, the outermost first.
---@param stack loam.ProfileLocation[]
---@return loam.ProfileFrame[]
function profile.stack_frames(stack)
  local all = {}
  for _, location in ipairs(stack) do
    for _, frame in ipairs(profile.frames(location)) do all[#all + 1] = frame end
  end
  return all
end

return profile
