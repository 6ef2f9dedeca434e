-- pprof_read.lua - reads a profile in the format of pprof, plain or compressed with gzip.
--
-- Texts, ids and lists come from a file that any program may have written. So each index is
-- compared with the size of its list, and a file that breaks a law of the format is refused with
-- words.

local gzip = require("loam.command.profile.gzip")
local profile = require("loam.command.profile.profile")
local wire = require("loam.command.profile.wire")

local pprof_read = {}

-- The names of the fields that are read, by message and number. A star marks a repeated field; its
-- values become a list.
local PROFILE = { "*types", "*samples", "*mappings", "*locations", "*functions", "*texts",
                  [9] = "time_ns", [10] = "duration_ns", [11] = "period_type", [12] = "period",
                  [13] = "*comments", [14] = "default" }
local TYPE = { "type", "unit" }
local SAMPLE = { "*locations", "*values", "*labels" }
local LABEL = { "key", "text", "number", "unit" }
local MAPPING = { "id", "from", "to", "offset", "file", "build_id", "has_functions", "has_files",
                  "has_lines" }
local LOCATION = { "id", "mapping", "address", "*lines" }
local LINE = { "func", "line" }
local FUNCTION = { "id", "name", "system_name", "file", "line" }

-- The fields of these names hold bytes; all others hold numbers.
local IS_BYTES = { types = true, samples = true, mappings = true, functions = true, texts = true,
                   period_type = true, labels = true, lines = true }

local function broken(words, ...)
  error({ wire = words:format(...) }, 0)
end

-- Reads a message into a table. A field that the message does not have is 0, or an empty list.
-- `has_bytes` says whether the field `locations` holds messages, as it does in a profile alone.
local function read(text, names, has_bytes)
  local out = {}
  for _, name in pairs(names) do
    if name:sub(1, 1) == "*" then out[name:sub(2)] = {} else out[name] = 0 end
  end
  wire.each(text, function(field, value, is_bytes)
    local name = names[field] or ""
    local list = name:match("^%*(.*)$")
    local wants_bytes = IS_BYTES[list or name] or has_bytes and list == "locations"
    if name == "" then return end
    if not list then
      if is_bytes ~= (wants_bytes or false) then broken("the field '%s' has a wrong type", name) end
      out[name] = value
    elseif not wants_bytes then
      wire.append(out[list], value, is_bytes)
    elseif is_bytes then
      table.insert(out[list], value)
    else
      broken("the field '%s' has a wrong type", list)
    end
  end)
  return out
end

-- Returns the text with an index, from 0.
local function text_at(from, index)
  return from.texts[index + 1] or broken("it has no text number %.0f", index)
end

-- Like text_at; nil for the empty text.
local function text_or_nil(from, index)
  return index ~= 0 and text_at(from, index) or nil
end

local function number_or_nil(n)
  return n ~= 0 and n or nil
end

local function type_of(from, message)
  local kind = read(message, TYPE)
  return { type = text_at(from, kind.type), unit = text_at(from, kind.unit) }
end

-- Reads the messages of a list, and adds what `make` returns for each to a table by id.
local function by_id(messages, names, make)
  local found = {}
  for _, message in ipairs(messages) do
    local entry = read(message, names)
    found[entry.id] = make(entry)
  end
  return found
end

local function find(list, id, what)
  return list[id] or broken("it has no %s number %.0f", what, id)
end

-- Adds the mappings, the functions and the locations of the file to the profile. Returns the
-- locations by their ids in the file.
local function add_locations(made, from)
  local mappings = by_id(from.mappings, MAPPING, function(m)
    return profile.add_mapping(made, {
      from = m.from, to = m.to, offset = number_or_nil(m.offset), file = text_or_nil(from, m.file),
      build_id = text_or_nil(from, m.build_id), has_functions = m.has_functions ~= 0,
      has_files = m.has_files ~= 0, has_lines = m.has_lines ~= 0,
    })
  end)
  local functions = by_id(from.functions, FUNCTION, function(f)
    local name, system_name = text_at(from, f.name), text_or_nil(from, f.system_name)
    return profile.add_function(made, {
      name = name, system_name = system_name ~= name and system_name or nil,
      file = text_or_nil(from, f.file), line = number_or_nil(f.line),
    })
  end)
  return by_id(from.locations, LOCATION, function(l)
    local lines = {}
    for i, message in ipairs(l.lines) do
      local line = read(message, LINE)
      lines[i] = { func = find(functions, line.func, "function"), line = number_or_nil(line.line) }
    end
    return profile.add_location(made, {
      address = number_or_nil(l.address), lines = lines,
      mapping = l.mapping ~= 0 and find(mappings, l.mapping, "mapping") or nil,
    })
  end)
end

local function label_of(from, message)
  local label = read(message, LABEL)
  return { key = text_at(from, label.key), text = text_or_nil(from, label.text),
           number = number_or_nil(label.number), unit = text_or_nil(from, label.unit) }
end

local function add_samples(made, from, locations)
  for _, message in ipairs(from.samples) do
    local sample, stack, labels = read(message, SAMPLE), {}, {}
    if #sample.values ~= #made.types then
      broken("a sample has %d values, and there are %d types", #sample.values, #made.types)
    end
    for i, id in ipairs(sample.locations) do
      stack[#sample.locations + 1 - i] = find(locations, id, "location")
    end
    for i, text in ipairs(sample.labels) do labels[i] = label_of(from, text) end
    profile.add(made, stack, sample.values, labels)
  end
end

local function read_profile(text)
  local from, types = read(text, PROFILE, true), {}
  for i, message in ipairs(from.types) do types[i] = type_of(from, message) end
  if #types == 0 then broken("it has no types of samples") end
  local made = profile.new(types)
  made.default = profile.type_index(made, text_at(from, from.default)) or #types
  made.time_ns, made.duration_ns = number_or_nil(from.time_ns), number_or_nil(from.duration_ns)
  made.period = number_or_nil(from.period)
  if from.period_type ~= 0 then made.period_type = type_of(from, from.period_type) end
  for i, index in ipairs(from.comments) do made.comments[i] = text_at(from, index) end
  add_samples(made, from, add_locations(made, from))
  return made
end

-- Reads the bytes of a pprof file.
---@param text string
---@return loam.Profile|nil
---@return string|nil words why the bytes are no profile
function pprof_read.read(text)
  if text == "" then return nil, "it is empty" end
  if gzip.is_packed(text) then
    local plain, words = gzip.uncompress(text)
    if not plain then return nil, words end
    text = plain
  end
  local ok, made = pcall(read_profile, text)
  if ok then return made end
  if type(made) == "table" and made.wire then return nil, made.wire end
  return error(made, 0)
end

return pprof_read
