-- cells.lua - draws the memory of one group as rows of cells, in order of address.
--
-- A cell is a column that is filled from below: live memory, live blocks that were never touched or
-- are in swap, memory in thread caches, free memory. White parts of a column have no memory. Spans
-- of small objects stand apart from each other; cells of one large block touch. A cell that stands
-- for less memory than others is narrower. A line under a cell shows how much of its memory is on
-- huge pages. Many cells without memory in a row become one mark with their size.

local palette = require("loam.command.pages.palette")
local svg = require("loam.command.pages.svg")
local units = require("loam.command.units")

local cells = {}

---@class loam.CellSize
---@field width number
---@field height number
---@field step number from a cell to the next
---@field row number from a row to the next

-- The sizes of a cell, by the most cells that a picture may have at this size.
local SIZES = {
  { most = 400, width = 16, height = 24, step = 18, row = 32 },
  { most = 1500, width = 11, height = 17, step = 12.5, row = 24 },
  { most = math.huge, width = 7.5, height = 12, step = 8.5, row = 18 },
}

---@return loam.CellSize the largest size that suits a picture of `n` cells
function cells.size(n)
  for _, size in ipairs(SIZES) do
    if n <= size.most then return size end
  end
end

local GAP_SHOWN = 4 -- cells without memory in a row that are still drawn one by one

-- Returns how many places of a row a cell takes, and the words of a mark in place of cells.
local function places_of(cell, answer, size)
  local n = math.ceil(cell.bytes / answer.cell_bytes)
  if n <= GAP_SHOWN then return n end
  local words = units.bytes(cell.bytes)
  return math.ceil((#words * 5.4 + 22) / size.step), words
end

-- Places of a row that follow one another.
local Rows = {}
Rows.__index = Rows

local function new_rows(x, y, width, size)
  return setmetatable({ x = x, y = y, size = size, n = 0,
    per_row = math.floor((width + size.step - size.width) / size.step) }, Rows)
end

-- Takes places that follow one another in one row. Returns the corner of the first, and whether a
-- new row begins there.
function Rows:take(places)
  local used = self.n % self.per_row
  if used + places > self.per_row then self.n = self.n + self.per_row - used end
  local column, row = self.n % self.per_row, math.floor(self.n / self.per_row)
  self.n = self.n + places
  return self.x + column * self.size.step, self.y + row * self.size.row, column == 0
end

function Rows:height()
  return math.ceil(self.n / self.per_row) * self.size.row
end

-- Adds the column of a cell to the shapes.
local function add_column(shapes, cell, x, y, width, size)
  local own = cell.kind == "metadata" and cell.resident or 0
  local free = (cell.resident or 0) - (cell.live or 0) - (cell.cached or 0) - own
  local layers = {
    { "own", own }, { "live", cell.live or 0 }, { "absent", cell.absent or 0 },
    { "cached", cell.cached or 0 }, { "free", free },
  }
  local below = y + size.height
  for _, layer in ipairs(layers) do
    local height = size.height * math.min(1, layer[2] / cell.bytes)
    -- A layer that would be too thin to be seen is drawn as high as a line can be seen.
    if layer[2] > 0 then height = math.max(height, 0.8) end
    height = math.min(height, below - y)
    below = below - height
    shapes[layer[1]]:add(x, below, width, height)
  end
  if cell.huge then
    shapes.huge:add(x, y + size.height + 1.4, width * cell.huge / cell.resident, 2.2)
  end
end

-- Draws a mark for many cells without memory.
local function gap_text(words, x, y, places, size)
  local width = places * size.step - (size.step - size.width)
  local middle = y + size.height / 2
  return svg.element("path", { { "d", ("M%s %sh%s"):format(svg.number(x + 1), svg.number(middle),
      svg.number(width - 2)) }, { "stroke", palette.line }, { "stroke-dasharray", "2 2" } })
    .. svg.element("rect", { { "x", x + width / 2 - #words * 2.7 - 3 }, { "y", middle - 6 },
      { "width", #words * 5.4 + 6 }, { "height", 12 }, { "fill", palette.paper } })
    .. svg.text(x + width / 2, middle + 3.3, words, { { "text-anchor", "middle" },
      { "font-size", "9.5" }, { "fill", palette.muted } })
end

local LAYERS = { "own", "live", "absent", "cached", "free", "frame", "huge" }

-- Returns whether a cell goes on with the large block of the cell before.
local function goes_on(cell)
  return (cell.kind == "large" or cell.kind == "guarded") and not cell.blocks
end

-- Draws the cells of a group from `x` to `x + width`. `number` is the group's colour; nil: grey.
---@return string elements
---@return number height
function cells.draw(group, answer, size, x, y, width, number)
  local shapes, marks = {}, {}
  local rows, looks = new_rows(x, y, width, size), palette.looks(number)
  for _, name in ipairs(LAYERS) do shapes[name] = svg.shape() end
  for _, cell in ipairs(group.cells) do
    local places, words = places_of(cell, answer, size)
    for _ = 1, words and 1 or places do
      local left, top, is_first = rows:take(words and places or 1)
      local from = goes_on(cell) and not is_first and left - (size.step - size.width) or left
      if words then
        marks[#marks + 1] = gap_text(words, left, top, places, size)
      else
        local wide = left - from + size.width * math.min(1, cell.bytes / answer.cell_bytes)
        add_column(shapes, cell, from, top, wide, size)
        shapes.frame:add(from, top, wide, size.height)
      end
    end
  end
  local out = {}
  for i, name in ipairs(LAYERS) do out[i] = shapes[name]:text(looks[name]) end
  return table.concat(out) .. table.concat(marks), rows:height()
end

return cells
