-- picture.lua - the picture of `loam pages`: an SVG of where the memory of a program lies.
--
-- From above: what the picture shows (program, policy, date, scale); the sums, which are the legend
-- too; the memory of each strategy on each NUMA node, in order of address; the largest blocks. The
-- file holds all it needs: no script, no font, no other file.

local cells = require("loam.command.pages.cells")
local palette = require("loam.command.pages.palette")
local summary = require("loam.command.pages.summary")
local svg = require("loam.command.pages.svg")
local units = require("loam.command.units")

local picture = {}

local WIDTH, MARGIN = 1000, 28
local INNER = WIDTH - 2 * MARGIN
local NAME_MOST = 48 -- characters of a name

local BOLD = { { "font-weight", "600" } }
local MUTED = { { "fill", palette.muted } }
local RIGHT = { { "fill", palette.muted }, { "text-anchor", "end" } }

local function percent(part, whole)
  if whole == 0 then return "0%" end
  local value = 100 * part / whole
  if value > 0 and value < 1 then return "<1%" end
  if value > 99 and value < 100 then return ">99%" end
  return ("%d%%"):format(value + 0.5)
end

-- ---- sums

-- Returns the sums of all memory that the picture shows.
local function sums(answer)
  local own = 0
  for _, group in ipairs(answer.groups) do
    if group.what == "metadata" then own = own + group.resident_bytes end
  end
  local live = answer.live_bytes - answer.absent_bytes
  return {
    resident = answer.resident_bytes, live = live, absent = answer.absent_bytes,
    cached = answer.cached_bytes, own = own, huge = answer.huge_bytes,
    none = answer.bytes - answer.resident_bytes - answer.absent_bytes,
    free = answer.resident_bytes - live - answer.cached_bytes - own,
  }
end

-- The sums in the order of the legend: key in the table of sums, name, meaning, and whether the sum
-- is a part of the memory that the program has (and so of the bar).
local TILES = {
  { "live", "live", "used by the program", true },
  { "cached", "cached", "freed, kept by threads", true },
  { "free", "free", "or lost to rounding", true },
  { "own", "loam's own", "its tables", true },
  { "absent", "live, not there", "untouched or in swap" },
  { "none", "no memory", "given back, untouched" },
  { "huge", "huge pages", "a line under the cells" },
}

-- Draws the sample of a sum: a cell as the rows below have it.
local function sample(kind, x, y)
  local looks = palette.looks()
  local frame = svg.shape()
  frame:add(x, y, 13, 20)
  local out = { svg.element("rect", { { "x", x }, { "y", y }, { "width", 13 }, { "height", 20 },
    { "fill", palette.paper } }) }
  local fill = svg.shape()
  if kind == "huge" then fill:add(x, y + 21.5, 13, 2.4) else fill:add(x, y, 13, 20) end
  if looks[kind] then out[#out + 1] = fill:text(looks[kind]) end
  out[#out + 1] = frame:text(looks.frame)
  return table.concat(out)
end

local function tile(entry, all, x, y)
  local bytes, words = all[entry[1]], entry[2]
  local value = units.bytes(bytes)
  if entry[4] or entry[1] == "huge" then
    value = value .. ", " .. percent(bytes, all.resident)
  end
  return sample(entry[1], x, y)
    .. svg.text(x + 20, y + 8, words, { { "font-size", "12" }, { "font-weight", "600" } })
    .. svg.text(x + 20, y + 22, value, { { "font-size", "12" } })
    .. svg.text(x + 20, y + 35, entry[3], { { "font-size", "9.5" }, { "fill", palette.muted } })
end

-- Draws one bar: the memory that the program has now, divided by its use.
local function bar(all, y)
  local out, x, looks = {}, MARGIN, palette.looks()
  for _, entry in ipairs(TILES) do
    local kind = entry[1]
    if entry[4] and all.resident > 0 then
      local width = INNER * all[kind] / all.resident
      local shape = svg.shape()
      shape:add(x, y, width, 14)
      out[#out + 1] = shape:text(looks[kind])
      x = x + width
    end
  end
  local frame = svg.shape()
  frame:add(MARGIN, y, INNER, 14)
  out[#out + 1] = frame:text(looks.frame)
  return table.concat(out)
end

local function legend(answer, y)
  local all, out = sums(answer), {}
  local step = INNER / #TILES
  for i, entry in ipairs(TILES) do out[i] = tile(entry, all, MARGIN + (i - 1) * step, y) end
  return bar(all, y - 26) .. table.concat(out), 48
end

-- ---- head

local function policy_words(about)
  if about.policy and about.policy ~= "" then
    return ("policy %s, hash %s"):format(svg.shorten(about.policy, NAME_MOST), about.hash or "?")
  end
  if about.hash then return "policy without a name, hash " .. about.hash end
  return about.generation == 0 and "the built-in default policy" or "policy not known"
end

local function title_of(about)
  return ("Memory of %s, process %d"):format(svg.shorten(about.program, NAME_MOST), about.pid)
end

local function head(answer, about)
  local scale = ("one cell is %s"):format(units.exact(answer.cell_bytes))
  return svg.text(MARGIN, 44, title_of(about), { { "font-size", "21" }, BOLD[1] })
    .. svg.text(MARGIN, 64, policy_words(about) .. " \194\183 " .. about.date, MUTED)
    .. svg.text(WIDTH - MARGIN, 44, units.bytes(answer.resident_bytes) .. " in memory",
      { { "font-size", "17" }, BOLD[1], { "text-anchor", "end" } })
    .. svg.text(WIDTH - MARGIN, 64, scale .. ", in order of address", RIGHT)
end

-- ---- groups

local HUGE_WORDS = {
  thp = "asks for huge pages", ["2MiB"] = "huge pages of 2 MiB", ["1GiB"] = "huge pages of 1 GiB",
  ["false"] = "asks for no huge pages",
}

local function group_words(group)
  local words = {}
  if group.kind and group.kind ~= "host" and group.kind ~= group.strategy then
    words[#words + 1] = group.kind
  end
  if group.node then words[#words + 1] = ("node %d"):format(group.node) end
  words[#words + 1] = HUGE_WORDS[group.asks_huge]
  return table.concat(words, " \194\183 ")
end

local function group_figures(group)
  local live = group.live_bytes - group.absent_bytes
  local words = { units.bytes(group.resident_bytes) .. " in memory" }
  if group.what ~= "metadata" and group.resident_bytes > 0 then
    words[#words + 1] = percent(live, group.resident_bytes) .. " of it live"
  end
  if group.huge_bytes > 0 then
    words[#words + 1] = units.bytes(group.huge_bytes) .. " on huge pages"
  end
  if group.absent_bytes > 0 then
    words[#words + 1] = units.bytes(group.absent_bytes) .. " live and not there"
  end
  if group.swapped_bytes > 0 then
    words[#words + 1] = units.bytes(group.swapped_bytes) .. " in swap"
  end
  return table.concat(words, " \194\183 ")
end

local function draw_group(group, answer, size, y, number)
  local name = svg.shorten(summary.name(group), NAME_MOST)
  local swatch = svg.shape()
  swatch:add(MARGIN, y - 9, 10, 10)
  local elements, height = cells.draw(group, answer, size, MARGIN, y + 10, INNER, number)
  local bold = svg.element("tspan", { { "font-size", "14" }, BOLD[1] }, svg.escape(name))
  local muted = svg.element("tspan", { { "dx", 10 }, MUTED[1] }, svg.escape(group_words(group)))
  return swatch:text({ { "fill", number and palette.hue(number) or palette.ink } })
    .. svg.line(MARGIN + 16, y, bold .. muted)
    .. svg.text(WIDTH - MARGIN, y, group_figures(group), RIGHT)
    .. elements, height + 34
end

local function draw_groups(answer, y)
  local out, n, number_of, numbers = {}, 0, {}, 0
  for _, group in ipairs(answer.groups) do n = n + #group.cells end
  local size = cells.size(n)
  for _, group in ipairs(answer.groups) do
    local name = group.what == "strategy" and group.strategy
    if name and not number_of[name] then
      numbers = numbers + 1
      number_of[name] = numbers
    end
    local elements, height = draw_group(group, answer, size, y, name and number_of[name] or nil)
    out[#out + 1] = elements
    y = y + height
  end
  return table.concat(out), y, numbers
end

-- ---- the end

-- Draws the largest blocks, each with a bar that shows how large it is against the largest.
local function largest(answer, y)
  if #answer.largest == 0 then return "", y end
  local out = { svg.text(MARGIN, y, "Largest blocks", { { "font-size", "14" }, BOLD[1] }) }
  for _, block in ipairs(answer.largest) do
    y = y + 18
    local shape = svg.shape()
    shape:add(MARGIN + 82, y - 9, math.max(1, 180 * block.bytes / answer.largest[1].bytes), 10)
    out[#out + 1] = svg.text(MARGIN + 74, y, units.bytes(block.bytes), { { "text-anchor", "end" } })
      .. shape:text({ { "fill", palette.neutral } })
      .. svg.text(MARGIN + 272, y, svg.shorten(block.tag ~= "" and block.tag or "(no tag)", 60)
        .. " in " .. svg.shorten(block.strategy, NAME_MOST))
  end
  return table.concat(out), y + 30
end

local function notes(answer)
  local words = { "A column is filled from below; large blocks join their cells." }
  if answer.huge_by_mapping and answer.huge_bytes > 0 then
    words[#words + 1] = "Huge pages are known for each mapping only."
  end
  if answer.node_step > 1 then
    words[#words + 1] = ("One of %d slots was asked for its node."):format(answer.node_step)
  end
  if answer.provided_bytes > 0 then
    words[#words + 1] = ("Not shown: %s of libc, handlers and devices."):format(
      units.bytes(answer.provided_bytes))
  end
  if answer.inexact then words[#words + 1] = "The program changed while it was read." end
  return table.concat(words, "  ")
end

-- Returns the picture in words, for readers of screens.
local function description(answer)
  local all = sums(answer)
  return ("%s in memory: %s live, %s cached, %s free, %s loam's own; %s on huge pages."):format(
    units.bytes(all.resident), units.bytes(all.live), units.bytes(all.cached),
    units.bytes(all.free), units.bytes(all.own), units.bytes(all.huge))
end

---@class loam.PictureAbout
---@field program string
---@field pid integer
---@field generation integer
---@field policy string|nil name of the policy
---@field hash string|nil of the policy's text
---@field date string

-- Draws the answer of `loam pages --json`.
---@param answer table
---@param about loam.PictureAbout
---@return string svg
function picture.draw(answer, about)
  local sum_words, sum_height = legend(answer, 112)
  local groups, y, numbers = draw_groups(answer, 112 + sum_height + 34)
  local blocks
  blocks, y = largest(answer, y)
  local body = svg.element("title", { { "id", "title" } }, svg.escape(title_of(about)))
    .. svg.element("desc", { { "id", "what" } }, svg.escape(description(answer)))
    .. palette.definitions(numbers)
    .. svg.element("rect", { { "width", WIDTH }, { "height", y + 16 }, { "rx", 8 },
      { "fill", palette.paper } })
    .. head(answer, about) .. sum_words .. groups .. blocks
    .. svg.text(MARGIN, y, notes(answer), { { "font-size", "10" }, MUTED[1] })
  return svg.element("svg", {
    { "xmlns", "http://www.w3.org/2000/svg" }, { "viewBox", ("0 0 %d %d"):format(WIDTH, y + 16) },
    { "width", WIDTH }, { "height", math.floor(y + 16) }, { "role", "img" },
    { "aria-labelledby", "title what" }, { "font-size", "12" }, { "fill", palette.ink },
    { "font-family", "system-ui, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif" },
  }, "\n" .. body)
end

return picture
