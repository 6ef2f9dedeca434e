-- svg_flame.lua - the rectangles of a flame graph: a row for each level of the tree, the root at
-- the top. The width of a rectangle is the memory of its frame.

local svg_style = require("loam.command.profile.svg_style")
local svg_text = require("loam.command.profile.svg_text")
local tree = require("loam.command.profile.tree")
local units = require("loam.command.units")

local svg_flame = {}

local ROW, FONT, PAD = 22, 12, 5
local LEAST = 0.8       -- a narrower rectangle is drawn together with its narrow neighbours
local LEAST_TEXT = 26   -- a narrower rectangle has no text
local GAP = 14          -- between the name and the value

---@class loam.ProfilePicture
---@field types loam.ProfileType[]
---@field index integer the position of the type that is drawn
---@field is_difference boolean|nil
---@field is_gone boolean|nil whether the tree has the stacks that vanished in a difference
---@field colour table<string, integer> the number of a strategy's colour
---@field total number the value of 100 %
---@field scale number pixels for a unit of the value
---@field out string[] the elements so far

-- Returns a value of a type in words.
function svg_flame.value_text(kind, value)
  return kind.unit == "bytes" and units.bytes(value) or units.count(value)
end

local function percent(picture, value)
  return picture.total > 0 and ("%.1f%%"):format(100 * value / picture.total) or "0%"
end

-- Returns a change in words: "3 MiB more".
function svg_flame.change_text(kind, value, before)
  if value == before then return "unchanged" end
  return svg_flame.value_text(kind, math.abs(value - before))
    .. (value > before and " more" or " less")
end

-- Returns a node's value of the type that is drawn, in words.
local function shown_text(picture, node)
  local kind = picture.types[picture.index]
  local value, before = svg_flame.value_text(kind, node.value),
    svg_flame.value_text(kind, node.before)
  if picture.is_gone then return ("%s: %s before, none now"):format(kind.type, before) end
  if not picture.is_difference then
    return ("%s: %s, %s"):format(kind.type, value, percent(picture, node.value))
  end
  return ("%s: %s now, %s before: %s"):format(kind.type, value, before,
    svg_flame.change_text(kind, node.value, node.before))
end

-- Returns the words that the reader gets when the pointer rests on a rectangle.
local function tip(picture, node)
  local lines = { node.name, shown_text(picture, node) }
  for i, other in ipairs(picture.types) do
    if i ~= picture.index and node.sums[i] then
      lines[#lines + 1] = ("%s: %s"):format(other.type, svg_flame.value_text(other, node.sums[i]))
    end
  end
  return table.concat(lines, "\n")
end

-- The bounds of the steps of a change, as a part of the larger of both values.
local BOUNDS = { 0.1, 0.3, 0.7 }

-- Returns the class of a frame in a difference.
local function change_class(node)
  local change = math.abs(node.value - node.before) / math.max(node.value, node.before, 1)
  if change < 0.01 then return "deep" end
  local step = svg_style.STEPS
  for i = #BOUNDS, 1, -1 do
    if change < BOUNDS[i] then step = i end
  end
  return (node.value > node.before and "more" or "less") .. step
end

-- Returns the class of a rectangle.
local function class_of(picture, node, depth)
  if picture.is_gone then return "less4" end
  if picture.is_difference then return change_class(node) end
  if depth == 0 then return "root" end
  local kind = tree.kind(node)
  if kind == "strategy" then return "s" .. (picture.colour[node.name] or 1) end
  if kind == "tag" then return depth > 1 and "deep" or "tag" end
  return svg_style.shade(node.name, kind)
end

-- Tells whether a class has a strong colour, on which text is bright.
local function is_strong(class)
  return class == "more4" or class == "less4" or class:find("^s%d") ~= nil
end

-- Returns the name that is written on a rectangle. The parent of a tag shows the tag's beginning
-- already.
local function short_name(node, parent)
  local prefix = parent and parent.name .. "."
  if prefix and tree.kind(node) == "tag" and tree.kind(parent) == "tag"
    and #node.name > #prefix and node.name:sub(1, #prefix) == prefix then
    return node.name:sub(#prefix + 1)
  end
  return node.name
end

-- Draws the name on a rectangle, and the value if there is room.
local function draw_text(picture, x, y, width, class, box)
  local out, room = picture.out, width - 2 * PAD
  local text = svg_text.fit(box.name, FONT, room)
  if text == "" then return end
  local is_bright = is_strong(class)
  out[#out + 1] = ('<text x="%.1f" y="%d"%s>%s</text>\n'):format(x + PAD, y + 15,
    is_bright and ' class="bright"' or "", svg_text.escape(text))
  if svg_text.width(text, FONT) + svg_text.width(box.value, FONT) + GAP > room then return end
  class = is_bright and "bright" or picture.is_difference and "" or "faint"
  out[#out + 1] = ('<text x="%.1f" y="%d" text-anchor="end" class="%s">%s</text>\n'):format(
    x + width - PAD, y + 15, class, svg_text.escape(box.value))
end

-- Draws one rectangle with its text and its tip.
local function draw_box(picture, x, y, width, class, box)
  local out = picture.out
  out[#out + 1] = ('<g><title>%s</title><rect x="%.2f" y="%d" width="%.2f" height="%d"%s '
    .. 'class="%s"/>\n'):format(svg_text.escape(box.tip), x, y, math.max(width - 1, 0.4), ROW - 1,
    width > 6 and ' rx="2"' or "", class)
  if width >= LEAST_TEXT then draw_text(picture, x, y, width - 1, class, box) end
  out[#out + 1] = "</g>\n"
end

-- Returns the texts of the rectangle of a node: its name, its value and its tip.
local function box_of(picture, node, parent)
  local kind = picture.types[picture.index]
  local value = svg_flame.value_text(kind, node.value)
  if picture.is_difference and not picture.is_gone then
    value = svg_flame.change_text(kind, node.value, node.before)
  end
  return { name = short_name(node, parent), value = value, tip = tip(picture, node) }
end

-- Draws the children of a node that are too narrow to be drawn one by one as one rectangle.
local function draw_rest(picture, node, first, x, y)
  local kind, value, count = picture.types[picture.index], 0, 0
  for i = first, #node.children do
    value = value + node.children[i].value
    if node.children[i].value > 0 then count = count + 1 end
  end
  local width = value * picture.scale
  if width < LEAST then return end
  local words = ("%s more"):format(units.count(count))
  local text = svg_flame.value_text(kind, value)
  draw_box(picture, x, y, width, "small", { name = words, value = text,
    tip = ("%s under %s\n%s: %s, %s"):format(words, node.name, kind.type, text,
      percent(picture, value)) })
end

-- Draws the children of a node, and all below them. Returns the position below the lowest
-- rectangle.
local function draw_children(picture, node, depth, x, y)
  local lowest = y
  for i, child in ipairs(node.children) do
    local width = child.value * picture.scale
    if child.value == 0 then break end -- the children that follow have no memory either
    if width < LEAST then
      draw_rest(picture, node, i, x, y)
      return math.max(lowest, y + ROW)
    end
    draw_box(picture, x, y, width, class_of(picture, child, depth), box_of(picture, child, node))
    lowest = math.max(lowest, y + ROW, draw_children(picture, child, depth + 1, x, y + ROW))
    x = x + width
  end
  return lowest
end

-- Draws a tree, with its root or without.
---@param picture loam.ProfilePicture
---@param root loam.ProfileNode
---@param x number
---@param y number
---@param has_root boolean
---@return number the position below the picture
function svg_flame.draw(picture, root, x, y, has_root)
  if not has_root then return draw_children(picture, root, 1, x, y) end
  draw_box(picture, x, y, root.value * picture.scale, class_of(picture, root, 0),
    box_of(picture, root))
  return draw_children(picture, root, 1, x, y + ROW)
end

return svg_flame
