-- tags.lua - the exact profile of a process by tag and strategy, from the figures of `loam stats`.
--
-- The stack of a sample is the prefixes of its tag: `tensor.weights` has the frames `tensor` and
-- `tensor.weights`. The innermost frame is the strategy. Nothing is sampled, so the sums of a
-- profile are the figures that `loam stats` shows.

local describe = require("loam.command.describe")
local json = require("loam.report.json")
local profile = require("loam.command.profile.profile")
local units = require("loam.command.units")

local tags = {}

local ALL_SIZES = 2 ^ 47 -- the largest request, with which a class of all sizes ends
local UNKNOWN = "(tag not known)" -- in place of a tag in last figures

-- Returns the prefixes of a tag: a policy's `under` is true for each of them. The last is the tag.
---@return string[]
function tags.prefixes(tag)
  local list = {}
  for at in tag:gmatch("()%.") do
    if at > 1 then list[#list + 1] = tag:sub(1, at - 1) end
  end
  list[#list + 1] = tag
  return list
end

-- Returns the frames of a tag and a strategy. A strategy that has the name of a frame of the tag is
-- marked, because readers of profiles would take the two for a recursion.
local function stack_of(made, tag, strategy)
  local stack, is_taken = {}, false
  for i, prefix in ipairs(tags.prefixes(tag)) do
    stack[i] = profile.add_frame(made, { name = describe.tag(prefix), kind = "tag" })
    is_taken = is_taken or prefix == strategy
  end
  local name = describe.tag(strategy) .. (is_taken and " (strategy)" or "")
  stack[#stack + 1] = profile.add_frame(made, { name = name, kind = "strategy" })
  return stack
end

-- Finds out which frames of a profile are tags and strategies, by the labels of its samples. A
-- profile that was read from a file needs this: no format has the kinds of frames.
---@param made loam.Profile
function tags.mark(made)
  for _, sample in ipairs(made.samples) do
    local label = {}
    for _, entry in ipairs(sample.labels) do label[entry.key] = entry.text end
    local stack = label.strategy and stack_of(profile.new(), label.tag or UNKNOWN, label.strategy)
    for i, wanted in ipairs(stack or {}) do
      local line = sample.stack[i] and sample.stack[i].lines[1]
      local func = wanted.lines[1].func
      if line and not sample.stack[i].address and line.func.name == func.name then
        line.func.kind = func.kind
      end
    end
  end
end

-- Returns whether a profile is by tags: whether it has frames that tags.mark or this module made
-- frames of tags.
---@param made loam.Profile
function tags.is_of(made)
  for _, func in ipairs(made.functions) do
    if func.kind == "tag" then return true end
  end
  return false
end

local function labels_of(tag, strategy)
  return { { key = "tag", text = tag }, { key = "strategy", text = strategy } }
end

local function values_of(figures)
  return { figures.total_blocks, figures.total_bytes, figures.live_blocks, figures.live_bytes }
end

-- Adds the memory of a tag and a strategy: one sample for each size class, if the program told its
-- classes. A class of all sizes has the blocks whose class was not noted.
local function add_row(made, row)
  local stack = stack_of(made, row.tag, row.strategy)
  local classes = row.classes or {}
  for _, class in ipairs(#classes > 0 and classes or { row }) do
    local labels = labels_of(row.tag, row.strategy)
    if class.to and (class.from > 0 or class.to < ALL_SIZES) then
      labels[3] = { key = "bytes", number = class.to, unit = "bytes" }
    end
    profile.add(made, stack, values_of(class), labels)
  end
end

-- Adds the memory that the sums of the answer have and its rows lack. There is such memory if loam
-- had no memory for a table of all rows.
local function add_rest(made, answer)
  local rest, is_any = values_of(answer), false
  for i = 1, #rest do
    rest[i] = rest[i] - profile.total(made, i)
    is_any = is_any or rest[i] ~= 0
  end
  if is_any then
    profile.add(made, { profile.add_frame(made, { name = "(other tags)", kind = "tag" }) }, rest)
  end
end

---@class loam.ProfileSubject
---@field pid integer
---@field program string
---@field version string of the command
---@field now number Unix time in seconds

-- Makes an empty profile. Its first mapping stands for the program: pprof takes the name from
-- there, and looks up no addresses, since the mapping says that all functions are known.
local function new_profile(subject, types)
  local made = profile.new(types)
  profile.add_mapping(made, { from = 0, to = 0, file = subject.program, has_functions = true,
                              has_files = true, has_lines = true })
  return made
end

-- Makes the profile of a process that could be read or asked.
---@param answer table the keys of `loam stats --json`
---@param subject loam.ProfileSubject
---@return loam.Profile
function tags.live(answer, subject)
  local made = new_profile(subject)
  for _, row in ipairs(answer.rows) do add_row(made, row) end
  add_rest(made, answer)
  made.time_ns = subject.now * 1e9
  made.title = ("%s: %s live in %s"):format(describe.program(subject),
    units.bytes(answer.live_bytes), units.plural(answer.live_blocks, "block"))
  made.comments = { "loam " .. subject.version, json.repaired(made.title),
                    ("policy generation %d"):format(answer.generation) }
  if answer.inexact then
    table.insert(made.comments, "the program changed while it was read: the figures are not exact")
  end
  return made
end

local IN_USE = { { type = "inuse_space", unit = "bytes" } }

-- Makes the profile of a process that can be neither read nor asked, from its last figures on a
-- board. They have the live bytes of strategies alone, and not those of tags under a strategy.
---@param status table the keys of `loam status --json`
---@param subject loam.ProfileSubject
---@return loam.Profile|nil nil: the board has no figures of memory
function tags.last(status, subject)
  local made = new_profile(subject, IN_USE)
  for _, use in ipairs(status.strategies or {}) do
    if use.live_bytes then
      local stack = stack_of(made, UNKNOWN, use.strategy)
      profile.add(made, stack, { use.live_bytes }, { { key = "strategy", text = use.strategy } })
    end
  end
  if #made.samples == 0 then return nil end
  made.time_ns = status.updated_at
  made.title = ("%s: about %s live by strategy, its last figures, of %s"):format(
    describe.program(subject), units.bytes(profile.total(made, 1)),
    units.ago(status.updated_at, subject.now))
  made.comments = { "loam " .. subject.version, json.repaired(made.title) }
  if (status.strategies_left_out or 0) > 0 then
    table.insert(made.comments, ("%s had no place on the board"):format(
      units.plural(status.strategies_left_out, "strategy", "strategies")))
  end
  return made
end

return tags
