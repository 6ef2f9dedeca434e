-- difference.lua - what became of the memory of one profile in another profile of the program.
--
-- A sample of the base and a sample of now are one if their labels are equal, and their stacks name
-- the same places. Another process has its libraries at other addresses, so a place without a
-- function is named by its file, its build id and its address in that file.

local profile = require("loam.command.profile.profile")

local difference = {}

-- Returns the identity of the file that a mapping shows.
local function file_key(mapping)
  return mapping and (mapping.build_id or mapping.file) or ""
end

local function place_key(location)
  local out = {}
  for i, frame in ipairs(profile.frames(location)) do
    local func = frame.func
    out[i] = ("%s\1%s\1%s"):format(frame.name, func and func.file or "", frame.line or "")
  end
  if #location.lines == 0 then out[#out + 1] = file_key(location.mapping) end
  return table.concat(out, "\2")
end

local function label_key(label)
  return ("%s\1%s\1%s\1%s"):format(label.key, label.text or "", label.number or "",
    label.unit or "")
end

-- Makes a function that returns a short key for a location: equal for equal places. A location has
-- its key computed once, because it is in many stacks.
local function new_places()
  local by_location, by_key, count = {}, {}, 0
  return function(location)
    local place = by_location[location]
    if place then return place end
    local key = place_key(location)
    if not by_key[key] then
      count = count + 1
      by_key[key] = ("%d"):format(count)
    end
    by_location[location] = by_key[key]
    return by_key[key]
  end
end

local function sample_key(sample, place_of)
  local out = {}
  for i, location in ipairs(sample.stack) do out[i] = place_of(location) end
  out[#out + 1] = ""
  for _, label in ipairs(sample.labels) do out[#out + 1] = label_key(label) end
  return table.concat(out, "\3")
end

-- Returns the types that both profiles have, with their positions in each.
local function common_types(now, base)
  local types = {}
  for i, kind in ipairs(now.types) do
    local other = profile.type_index(base, kind.type)
    if other and base.types[other].unit == kind.unit then
      types[#types + 1] = { type = kind.type, unit = kind.unit, now = i, base = other }
    end
  end
  return types
end

-- Returns a copy of a function or of a mapping, without its id.
local function copy_of(entry)
  local copy = {}
  for key, value in pairs(entry) do
    if key ~= "id" and key ~= "frames" then copy[key] = value end
  end
  return copy
end

-- Returns the mapping of `made` that shows the file of a mapping of another profile. If there is
-- none, adds a copy of that mapping.
local function find_mapping(made, mapping)
  for _, other in ipairs(made.mappings) do
    if file_key(other) == file_key(mapping) and other.offset == mapping.offset
      and other.to - other.from == mapping.to - mapping.from then
      return other
    end
  end
  return profile.add_mapping(made, copy_of(mapping))
end

-- Adds a location of another profile to `made`. If `made` has the file at other addresses, the
-- address of the location is changed accordingly.
local function add_copy(made, location)
  local mapping = location.mapping and find_mapping(made, location.mapping)
  local lines, address = {}, location.address
  if mapping and address then address = address - location.mapping.from + mapping.from end
  for i, line in ipairs(location.lines) do
    lines[i] = { func = profile.add_function(made, copy_of(line.func)), line = line.line }
  end
  return profile.add_location(made, { address = address, mapping = mapping, lines = lines })
end

-- Returns an entry of the sums without memory, with the stack and the labels of a sample.
local function new_entry(made, sample, copies)
  local entry = { stack = {}, labels = sample.labels, values = {}, before = {} }
  for i, location in ipairs(sample.stack) do
    copies[location] = copies[location] or add_copy(made, location)
    entry.stack[i] = copies[location]
  end
  for i in ipairs(made.types) do entry.values[i], entry.before[i] = 0, 0 end
  return entry
end

-- Adds the samples of one profile to the sums by key. `sign` is 1 for now and -1 for the base.
local function gather(made, from, sums, place_of, sign)
  local copies = {} -- of locations
  for _, sample in ipairs(from.samples) do
    local key = sample_key(sample, place_of)
    local entry = sums[key]
    if not entry then
      entry = new_entry(made, sample, copies)
      sums[key], sums[#sums + 1] = entry, entry
    end
    for i, kind in ipairs(made.types) do
      local value = sample.values[sign > 0 and kind.now or kind.base]
      entry.values[i] = entry.values[i] + sign * value
      if sign < 0 then entry.before[i] = entry.before[i] + value end
    end
  end
end

-- Returns the difference of two profiles, `now` less `base`. A stack that vanished has negative
-- values. `before` of each sample has the values of the base.
---@param now loam.Profile
---@param base loam.Profile
---@return loam.Profile|nil nil: the profiles have no type of sample in common
function difference.of(now, base)
  local types = common_types(now, base)
  if #types == 0 then return nil end
  local made = profile.new(types)
  made.default = profile.type_index(made, now.types[now.default].type) or #types
  made.is_difference, made.title, made.time_ns = true, now.title, now.time_ns
  made.comments = now.comments
  for _, mapping in ipairs(now.mappings) do profile.add_mapping(made, copy_of(mapping)) end
  local sums, place_of = {}, new_places()
  gather(made, now, sums, place_of, 1)
  gather(made, base, sums, place_of, -1)
  for _, entry in ipairs(sums) do
    if not (profile.is_zero(entry.values) and profile.is_zero(entry.before)) then
      made.samples[#made.samples + 1] = entry
    end
  end
  return made
end

return difference
