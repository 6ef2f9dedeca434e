-- pprof.lua - writes a profile in the format of pprof: profile.proto, compressed with gzip.
--
-- https://github.com/google/pprof/blob/main/proto/profile.proto. `go tool pprof`, Pyroscope, Parca
-- and speedscope read it. The format demands UTF-8 for each text, and the innermost location of a
-- stack first.

local gzip = require("loam.command.profile.gzip")
local json = require("loam.report.json")
local profile = require("loam.command.profile.profile")
local wire = require("loam.command.profile.wire")

local pprof = {}

local number, bytes, packed = wire.number, wire.bytes, wire.packed

-- The numbers of the fields, by message.
local PROFILE = { type = 1, sample = 2, mapping = 3, location = 4, func = 5, text = 6, time = 9,
                  duration = 10, period_type = 11, period = 12, comment = 13, default = 14 }
local TYPE = { type = 1, unit = 2 }
local SAMPLE = { location = 1, value = 2, label = 3 }
local LABEL = { key = 1, text = 2, number = 3, unit = 4 }
local MAPPING = { id = 1, from = 2, to = 3, offset = 4, file = 5, build_id = 6, has_functions = 7,
                  has_files = 8, has_lines = 9 }
local LOCATION = { id = 1, mapping = 2, address = 3, line = 4 }
local LINE = { func = 1, line = 2 }
local FUNCTION = { id = 1, name = 2, system_name = 3, file = 4, line = 5 }

-- Makes the table of texts: a message names a text by its index. Index 0 is the empty text.
local function new_texts()
  local texts = { list = { "" }, index = { [""] = 0 } }
  function texts.at(text)
    if not text then return 0 end
    local index = texts.index[text]
    if index then return index end
    index = #texts.list
    texts.list[index + 1], texts.index[text] = json.repaired(text), index
    return index
  end
  return texts
end

local function type_message(kind, texts)
  return number(TYPE.type, texts.at(kind.type)) .. number(TYPE.unit, texts.at(kind.unit))
end

local function label_message(label, texts)
  return number(LABEL.key, texts.at(label.key)) .. number(LABEL.text, texts.at(label.text))
    .. number(LABEL.number, label.number) .. number(LABEL.unit, texts.at(label.unit))
end

local function sample_message(sample, texts)
  local ids, depth = {}, #sample.stack
  for i, location in ipairs(sample.stack) do ids[depth + 1 - i] = location.id end
  local out = { packed(SAMPLE.location, ids), packed(SAMPLE.value, sample.values) }
  for _, label in ipairs(sample.labels) do
    out[#out + 1] = bytes(SAMPLE.label, label_message(label, texts))
  end
  return table.concat(out)
end

local function mapping_message(mapping, texts)
  return number(MAPPING.id, mapping.id) .. number(MAPPING.from, mapping.from)
    .. number(MAPPING.to, mapping.to) .. number(MAPPING.offset, mapping.offset)
    .. number(MAPPING.file, texts.at(mapping.file))
    .. number(MAPPING.build_id, texts.at(mapping.build_id))
    .. number(MAPPING.has_functions, mapping.has_functions)
    .. number(MAPPING.has_files, mapping.has_files)
    .. number(MAPPING.has_lines, mapping.has_lines)
end

local function location_message(location)
  local out = {
    number(LOCATION.id, location.id),
    number(LOCATION.mapping, location.mapping and location.mapping.id),
    number(LOCATION.address, location.address),
  }
  for _, line in ipairs(location.lines) do
    out[#out + 1] = bytes(LOCATION.line,
      number(LINE.func, line.func.id) .. number(LINE.line, line.line))
  end
  return table.concat(out)
end

local function function_message(func, texts)
  return number(FUNCTION.id, func.id) .. number(FUNCTION.name, texts.at(func.name))
    .. number(FUNCTION.system_name, texts.at(func.system_name or func.name))
    .. number(FUNCTION.file, texts.at(func.file)) .. number(FUNCTION.line, func.line)
end

-- Returns the fields of the profile that are single numbers.
local function head(made, texts)
  local comments = {}
  for i, text in ipairs(made.comments) do comments[i] = texts.at(text) end
  local period = made.period_type
    and bytes(PROFILE.period_type, type_message(made.period_type, texts)) or ""
  return number(PROFILE.time, made.time_ns) .. number(PROFILE.duration, made.duration_ns)
    .. period .. number(PROFILE.period, made.period) .. packed(PROFILE.comment, comments)
    .. number(PROFILE.default, texts.at(made.types[made.default].type))
end

-- Returns a profile as a message of profile.proto, not compressed. Samples without any value are
-- left out.
---@param made loam.Profile
---@return string
function pprof.message(made)
  local texts, out, samples = new_texts(), {}, {}
  for _, sample in ipairs(made.samples) do
    if not profile.is_zero(sample.values) then samples[#samples + 1] = sample end
  end
  local function add(field, list, message)
    for _, entry in ipairs(list) do out[#out + 1] = bytes(field, message(entry, texts)) end
  end
  add(PROFILE.type, made.types, type_message)
  add(PROFILE.sample, samples, sample_message)
  add(PROFILE.mapping, made.mappings, mapping_message)
  add(PROFILE.location, made.locations, location_message)
  add(PROFILE.func, made.functions, function_message)
  out[#out + 1] = head(made, texts)
  for _, text in ipairs(texts.list) do out[#out + 1] = bytes(PROFILE.text, text) end
  return table.concat(out)
end

-- Returns the bytes of a pprof file. They are compressed where the system has a zlib.
---@param made loam.Profile
---@return string
function pprof.write(made)
  return gzip.compress(pprof.message(made))
end

return pprof
