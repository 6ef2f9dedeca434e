-- text.lua - writes one type of sample for a person at a terminal: the stacks with the most memory
-- first, each as a list of functions with their files and lines, the innermost first.

local json = require("loam.report.json")
local profile = require("loam.command.profile.profile")
local terminal = require("loam.command.terminal")
local units = require("loam.command.units")

local text = {}

local function plain(name) return terminal.plain(json.repaired(name)) end

-- Returns the line of a frame: its name, and its place in the source where that is known.
local function frame_line(frame)
  local file = frame.func and frame.func.file
  if not file then return ("    %s\n"):format(plain(frame.name)) end
  return ("    %s  %s%s\n"):format(plain(frame.name), plain(file),
    frame.line and frame.line > 0 and (":%d"):format(frame.line) or "")
end

local function stack_lines(stack)
  local frames, out = profile.stack_frames(stack), {}
  for i = #frames, 1, -1 do out[#out + 1] = frame_line(frames[i]) end
  return table.concat(out)
end

-- Sums the values of samples whose stacks have equal lines: their labels may differ.
local function sums(made, index)
  local list, known = {}, {}
  for _, sample in ipairs(made.samples) do
    local lines = stack_lines(sample.stack)
    local entry = known[lines]
    if not entry then
      entry = { lines = lines, value = 0, before = 0 }
      known[lines], list[#list + 1] = entry, entry
    end
    entry.value = entry.value + sample.values[index]
    entry.before = entry.before + (sample.before and sample.before[index] or 0)
  end
  table.sort(list, function(a, b)
    if a.value ~= b.value then return a.value > b.value end
    return a.lines < b.lines
  end)
  return list
end

-- Returns the line above the functions of a stack. In a difference, `value` is the change.
local function heading(made, entry, words, total)
  if made.is_difference then
    return ("%s %s, now %s"):format(words(math.abs(entry.value)),
      entry.value < 0 and "less" or "more", words(entry.value + entry.before))
  end
  return ("%s, %.1f%%"):format(words(entry.value), 100 * entry.value / total)
end

-- Returns the text. It leaves out stacks without memory, and in a difference also stacks that did
-- not change.
---@param made loam.Profile
---@param index integer the position of the type of sample
---@return string
function text.write(made, index)
  local kind, total = made.types[index], profile.total(made, index)
  local words = kind.unit == "bytes" and units.bytes or units.count
  local out = { made.title and plain(made.title) .. "\n" or "" }
  for _, entry in ipairs(sums(made, index)) do
    if entry.value ~= 0 then
      out[#out + 1] = ("\n%s %s\n%s"):format(kind.type, heading(made, entry, words, total),
        entry.lines)
    end
  end
  if made.is_difference and not out[2] then
    out[2] = ("\n%s: no stack has changed\n"):format(kind.type)
  end
  return table.concat(out)
end

return text
