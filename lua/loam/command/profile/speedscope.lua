-- speedscope.lua - writes a profile as JSON for speedscope (https://www.speedscope.app).
--
-- The file has one speedscope profile for each type of sample. A weight must not be negative, so a
-- difference has two profiles for each type: what became more, and what became less.

local json = require("loam.report.json")
local profile = require("loam.command.profile.profile")

local speedscope = {}

local SCHEMA = "https://www.speedscope.app/file-format-schema.json"
local UNITS = { bytes = "bytes" } -- speedscope knows no counts: their unit is "none"

-- Makes the list of frames that all profiles of the file share. `index_of` returns the index of a
-- frame, from 0.
local function new_frames()
  local list, known = json.array {}, {}
  local function index_of(frame)
    local file = frame.func and frame.func.file
    local key = frame.name .. "\0" .. (file or "") .. "\0" .. (frame.line or "")
    if not known[key] then
      known[key] = #list
      list[#list + 1] = { name = frame.name, file = file, line = frame.line }
    end
    return known[key]
  end
  return list, index_of
end

-- Returns the stacks with the indices of their frames, and with the sums of their samples, whose
-- labels may differ. They are in the order of their names, so equal frames are neighbours where
-- speedscope shows samples in the order of the file.
local function indexed(made, index_of)
  local rows, known = {}, {}
  for _, sample in ipairs(made.samples) do
    local names, stack = {}, json.array {}
    for n, frame in ipairs(profile.stack_frames(sample.stack)) do
      names[n], stack[n] = frame.name, index_of(frame)
    end
    local key = table.concat(stack, " ")
    local row = known[key]
    if not row then
      row = { order = table.concat(names, "\0"), stack = stack, values = {} }
      known[key], rows[#rows + 1] = row, row
    end
    for i, value in ipairs(sample.values) do row.values[i] = (row.values[i] or 0) + value end
  end
  table.sort(rows, function(a, b) return a.order < b.order end)
  return rows
end

-- Returns one profile of speedscope: the samples whose value times `sign` is positive.
local function sampled(rows, made, index, sign, name)
  local samples, weights, total = json.array {}, json.array {}, 0
  for _, row in ipairs(rows) do
    local weight = row.values[index] * sign
    if weight > 0 then
      samples[#samples + 1], weights[#weights + 1] = row.stack, weight
      total = total + weight
    end
  end
  return {
    type = "sampled", name = name, unit = UNITS[made.types[index].unit] or "none",
    startValue = 0, endValue = total, samples = samples, weights = weights,
  }
end

local ORDER = { "$schema", "exporter", "name", "activeProfileIndex", "shared", "profiles", "type" }

-- Returns the text of a file for speedscope.
---@param made loam.Profile
---@param exporter string the program that writes the file
---@return string
function speedscope.write(made, exporter)
  local frames, index_of = new_frames()
  local rows, profiles, active = indexed(made, index_of), json.array {}, 0
  for index, kind in ipairs(made.types) do
    if index == made.default then active = #profiles end
    if made.is_difference then
      profiles[#profiles + 1] = sampled(rows, made, index, 1, kind.type .. ": more")
      profiles[#profiles + 1] = sampled(rows, made, index, -1, kind.type .. ": less")
    else
      profiles[#profiles + 1] = sampled(rows, made, index, 1, kind.type)
    end
  end
  return json.encode({
    ["$schema"] = SCHEMA, exporter = exporter, name = made.title or "loam profile",
    activeProfileIndex = active, shared = { frames = frames }, profiles = profiles,
  }, ORDER) .. "\n"
end

return speedscope
