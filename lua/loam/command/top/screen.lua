-- screen.lua - `loam top` on a terminal: draws, reads keys, and restores the terminal at the end.

local collect = require("loam.command.top.collect")
local columns = require("loam.command.top.columns")
local groups = require("loam.command.top.groups")
local outside = require("loam.command.context")
local view = require("loam.command.top.view")

local screen = {}

local LONG_MS = 3600 * 1000 -- a frozen screen waits for keys alone
local SIGNALLED = 128       -- a shell's status for a command that a signal ended, less the signal

-- ---- The model

-- Keeps a round's processes, and adds their figures up when they are shown the next time.
local function take_round(model)
  model.processes = collect.round(model.collected, model.by == "node")
  model.has_changed = true
end

local function build(model)
  if not model.has_changed then return end
  local now = model.context.posix.clock()
  model.groups = columns.filter(model.by, groups.build(model.processes, model.by, model.peaks, now),
    model.mode == "filter" and model.input or model.filter)
  model.total = groups.total(model.processes)
  model.has_changed = false
end

-- Returns the groups that `room` rows show, from the offset on.
local function visible(model, room)
  local most = math.max(0, #model.groups - room)
  model.offset = math.max(0, math.min(model.offset, most))
  local column = columns.find(model.by, model.sort)
  local first = columns.first(model.groups, columns.order(column, model.reverse),
    model.offset + room)
  local out = {}
  for i = model.offset + 1, math.min(#first, model.offset + room) do out[#out + 1] = first[i] end
  return out
end

local function show_grouping(model, by)
  model.by, model.offset, model.has_changed = by, 0, true
  if not columns.find(by, model.sort) then model.sort = "live" end
  if by == "node" and not model.is_frozen then take_round(model) end
end

-- ---- Keys

local function next_grouping(model)
  for i, name in ipairs(groups.NAMES) do
    if name == model.by then
      return show_grouping(model, groups.NAMES[i % #groups.NAMES + 1])
    end
  end
end

local function move_sort(model, step)
  local list, at = columns.shown(model.by, model.groups), 1
  for i, one in ipairs(list) do
    if one.id == model.sort then at = i end
  end
  model.sort = list[(at - 1 + step) % #list + 1].id
end

local function scroll(rows)
  return function(model) model.offset = model.offset + rows(model) end
end

local KEYS = {
  q = function() return 0 end,
  ["\3"] = function() return 0 end, -- Ctrl-C
  ["\26"] = function(model) model.screen.suspend() end, -- Ctrl-Z
  g = next_grouping,
  ["\t"] = next_grouping,
  ["<"] = function(model) move_sort(model, -1) end,
  [">"] = function(model) move_sort(model, 1) end,
  r = function(model) model.reverse = not model.reverse end,
  ["/"] = function(model) model.mode, model.input = "filter", model.filter end,
  [" "] = function(model) model.is_frozen = not model.is_frozen end,
  h = function(model) model.mode = "help" end,
  up = scroll(function() return -1 end),
  down = scroll(function() return 1 end),
  page_up = scroll(function(model) return -model.room end),
  page_down = scroll(function(model) return model.room end),
  home = function(model) model.offset = 0 end,
  ["end"] = function(model) model.offset = #model.groups end,
}
KEYS["?"] = KEYS.h
KEYS.left, KEYS.right = KEYS["<"], KEYS[">"]
for i, name in ipairs(groups.NAMES) do
  KEYS[tostring(i)] = function(model) show_grouping(model, name) end
end

local SEQUENCES = {
  ["[A"] = "up", ["[B"] = "down", ["[C"] = "right", ["[D"] = "left", ["OA"] = "up", ["OB"] = "down",
  ["OC"] = "right", ["OD"] = "left", ["[5~"] = "page_up", ["[6~"] = "page_down", ["[H"] = "home",
  ["[F"] = "end", ["OH"] = "home", ["OF"] = "end", ["[1~"] = "home", ["[4~"] = "end",
}

-- Returns the key at a place of the bytes that a terminal sent, and the place of the next key. A
-- sequence that is not known gives the key "".
local function key_at(bytes, at)
  local sequence = bytes:match("^\27([%[O][%d;]*[%a~])", at)
  if sequence then return SEQUENCES[sequence] or "", at + 1 + #sequence end
  local character = bytes:match("^[%z\1-\127\192-\255][\128-\191]*", at) or bytes:sub(at, at)
  return character, at + #character
end

local function end_filter(model, text)
  model.mode, model.filter, model.offset, model.has_changed = nil, text, 0, true
end

-- Edits the text of the filter. The table follows while the text is typed.
local function edit_filter(model, key)
  if key == "\3" then return 0 end
  if key == "\r" or key == "\n" then return end_filter(model, model.input) end
  if key == "\27" then return end_filter(model, "") end
  if key == "\127" or key == "\8" then
    model.input = model.input:gsub("[%z\1-\127\192-\255][\128-\191]*$", "")
  elseif key ~= "" and (key:byte() >= 128 or #key == 1 and not key:find("%c")) then
    model.input = model.input .. key
  end
  model.offset, model.has_changed = 0, true
end

-- Handles keys. Returns the exit status if one of them ends the command.
local function press(model, bytes)
  local at = 1
  while at <= #bytes do
    local key, status
    key, at = key_at(bytes, at)
    if model.mode == "filter" then
      status = edit_filter(model, key)
    elseif model.mode == "help" and key ~= "\3" then
      model.mode = nil
    elseif KEYS[key] then
      status = KEYS[key](model)
    end
    if status then return status end
  end
end

-- ---- The loop

local function draw(model)
  build(model)
  local columns_n, rows = model.screen.size()
  local lines, room = view.screen(model, columns_n, rows, model.context.paint)
  model.room = room
  -- The sequence \27[K clears the rest of a line, and \27[J clears the rest of the screen. Both
  -- begin at the cursor. Behind a line that fills the terminal, the cursor stands on the last
  -- character of this line.
  for i, line in ipairs(lines) do lines[i] = (i < #lines and "\27[K" or "\27[J") .. line end
  return model.screen.write("\27[H" .. table.concat(lines, "\r\n"))
end

-- Waits until something happens. Returns the exit status if that ends the command.
local function await(model)
  local clock = model.context.posix.clock
  local wait = model.is_frozen and LONG_MS or math.max(0, model.next_at - clock())
  local event, data = model.screen.wait(wait)
  if event == "keys" then return press(model, data) end
  if event == "stop" then model.screen.suspend() end
  if event == "end" then return data > 0 and SIGNALLED + data or 0 end
end

local function run(model)
  local clock = model.context.posix.clock
  while true do
    if not model.is_frozen and clock() >= model.next_at then
      take_round(model)
      model.next_at = clock() + model.every
    end
    if not draw(model) then return 0 end
    local status = await(model)
    if status then return status end
  end
end

-- Shows the processes until a key or a signal ends that.
---@param given table the options of the verb
---@return integer exit status
function screen.run(context, collected, given)
  local model = {
    context = context, collected = collected, screen = context.posix.screen, processes = {},
    is_named = #given > 0,
    by = given.by, sort = given.sort, reverse = given.reverse or false,
    filter = given.filter or "", input = "", peaks = {}, groups = {}, offset = 0, room = 1,
    every = given.every, every_text = given.every_text, next_at = 0, is_frozen = false,
  }
  model.rows = function(room) return visible(model, room) end
  if not model.screen.open() then context.fail("the terminal cannot be used") end
  local ok, result = outside.try(function() return run(model) end)
  model.screen.close()
  if not ok then error(result, 0) end
  return result
end

return screen
