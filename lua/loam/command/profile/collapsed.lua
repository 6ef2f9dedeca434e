-- collapsed.lua - writes one type of sample as collapsed stacks: a line for each stack, with its
-- frames separated by semicolons, and its value.
--
-- flamegraph.pl, inferno and speedscope read it. A line of a difference has two values, before
-- and now, as difffolded.pl writes them. A stack that vanished has the value 0 now.

local json = require("loam.report.json")
local profile = require("loam.command.profile.profile")
local terminal = require("loam.command.terminal")

local collapsed = {}

-- Returns a name as the format demands it: in UTF-8, without semicolons, on one line.
local function frame_text(name)
  return (terminal.plain(json.repaired(name)):gsub(";", "\\059"))
end

local function stack_text(stack)
  local names = {}
  for i, frame in ipairs(profile.stack_frames(stack)) do names[i] = frame_text(frame.name) end
  return table.concat(names, ";")
end

-- Sums the values of samples with equal stacks: their labels may differ.
local function sums(made, index)
  local texts, now, before = {}, {}, {}
  for _, sample in ipairs(made.samples) do
    local text = stack_text(sample.stack)
    if not now[text] then texts[#texts + 1], now[text], before[text] = text, 0, 0 end
    local base = sample.before and sample.before[index] or 0
    now[text] = now[text] + sample.values[index] + base
    before[text] = before[text] + base
  end
  table.sort(texts)
  return texts, now, before
end

-- Returns the text of a file of collapsed stacks. Stacks without memory are left out.
---@param made loam.Profile
---@param index integer the position of the type of sample
---@return string
function collapsed.write(made, index)
  local texts, now, before = sums(made, index)
  local out = {}
  for _, text in ipairs(texts) do
    if made.is_difference and (now[text] ~= 0 or before[text] ~= 0) then
      out[#out + 1] = ("%s %.0f %.0f\n"):format(text, before[text], now[text])
    elseif not made.is_difference and now[text] ~= 0 then
      out[#out + 1] = ("%s %.0f\n"):format(text, now[text])
    end
  end
  return table.concat(out)
end

return collapsed
