-- svg.lua - writes one type of sample as a flame graph: a picture in one SVG file.
--
-- The file needs no other file and no script. A picture of a profile by tag shows tags in grey, and
-- each strategy in a colour that the legend explains. In a difference, red frames have more memory
-- than in the base, and blue ones less. Stacks that are no longer there have a picture of their own
-- below, at an equal scale.

local profile = require("loam.command.profile.profile")
local svg_flame = require("loam.command.profile.svg_flame")
local svg_style = require("loam.command.profile.svg_style")
local svg_text = require("loam.command.profile.svg_text")
local tree = require("loam.command.profile.tree")

local svg = {}

local WIDTH, MARGIN = 1200, 20
local ROOM = WIDTH - 2 * MARGIN
local FONT, LINE = 12, 22

local function put_text(picture, x, y, text, class)
  table.insert(picture.out, ('<text x="%.1f" y="%d"%s>%s</text>\n'):format(x, y,
    class and (' class="%s"'):format(class) or "", svg_text.escape(text)))
end

-- ---- the legend

-- Returns the strategies of the tree with their sums, the largest first.
local function strategies_of(root)
  local list, known = {}, {}
  local function visit(node)
    if tree.kind(node) == "strategy" then
      local entry = known[node.name]
      if not entry then
        entry = { name = node.name, value = 0 }
        known[node.name], list[#list + 1] = entry, entry
      end
      entry.value = entry.value + node.value
    end
    for _, child in ipairs(node.children) do visit(child) end
  end
  visit(root)
  table.sort(list, function(a, b)
    if a.value ~= b.value then return a.value > b.value end
    return a.name < b.name
  end)
  return list
end

-- Gives each strategy its colour. Those beyond the last colour share it, and the legend has them as
-- one entry.
local function colour_strategies(picture, strategies)
  local kind, entries = picture.types[picture.index], {}
  for i, strategy in ipairs(strategies) do
    local at = math.min(i, svg_style.STRATEGIES)
    local entry = entries[at] or { class = "s" .. at, value = 0, count = 0 }
    entries[at], picture.colour[strategy.name] = entry, at
    entry.value, entry.count = entry.value + strategy.value, entry.count + 1
    entry.name = entry.count > 1 and ("%d other strategies"):format(entry.count) or strategy.name
  end
  for _, entry in ipairs(entries) do
    entry.text = ("%s: %s, %.1f%%"):format(svg_text.fit(entry.name, FONT, ROOM / 3),
      svg_flame.value_text(kind, entry.value), 100 * entry.value / math.max(picture.total, 1))
  end
  return entries
end

local CHANGES = {
  { class = "less4", text = "gone" }, { class = "less3" }, { class = "less2" },
  { class = "less1", text = "less" }, { class = "deep", text = "unchanged" },
  { class = "more1", text = "more" }, { class = "more2" }, { class = "more3" },
  { class = "more4", text = "new" },
}

-- Draws entries of a colour and a text, in as many lines as they need. Returns the position below.
local function draw_legend(picture, entries, y)
  local x = MARGIN
  for _, entry in ipairs(entries) do
    local width = 20 + (entry.text and svg_text.width(entry.text, FONT) + 8 or -2)
    if x > MARGIN and x + width > WIDTH - MARGIN then x, y = MARGIN, y + LINE end
    table.insert(picture.out, ('<rect x="%.1f" y="%d" width="13" height="13" rx="3" class="%s"/>\n')
      :format(x, y - 11, entry.class))
    if entry.text then put_text(picture, x + 19, y, entry.text) end
    x = x + width
  end
  return #entries > 0 and y + LINE or y
end

-- ---- the pictures

local function new_picture(made, index)
  return { types = made.types, index = index, is_difference = made.is_difference, colour = {},
           total = 0, scale = 0, out = {} }
end

-- Draws a tree, or says that it is empty. Returns the position below.
local function draw_tree(picture, root, y)
  if root.value > 0 then return svg_flame.draw(picture, root, MARGIN, y, true) end
  put_text(picture, MARGIN, y + 16, "There is no memory to show.", "faint")
  return y + LINE
end

local function draw_live(picture, made, y)
  local root = tree.build(made, picture.index)
  picture.total, picture.scale = root.value, root.value > 0 and ROOM / root.value or 0
  local entries = colour_strategies(picture, strategies_of(root))
  return draw_legend(picture, entries, draw_tree(picture, root, y) + 26)
end

-- Returns a tree of the nodes that vanished, whose memory is 0 now, with the path to them. In that
-- tree, the value of a node is the memory that vanished below it. Returns nil if nothing vanished.
local function vanished(node)
  local gone = { name = node.name, frame = node.frame, value = 0, before = 0, sums = {},
                 children = {} }
  if node.value == 0 then gone.value = node.before end
  for _, child in ipairs(node.children) do
    local part = vanished(child)
    gone.children[#gone.children + 1] = part
    if part and node.value ~= 0 then gone.value = gone.value + part.value end
  end
  gone.before = gone.value
  tree.sort(gone)
  return gone.value > 0 and gone or nil
end

local function draw_difference(picture, made, y)
  local root = tree.build(made, picture.index)
  local gone = vanished(root)
  picture.total = math.max(root.value, gone and gone.value or 0)
  picture.scale = picture.total > 0 and ROOM / picture.total or 0
  y = draw_tree(picture, root, y)
  if gone then
    put_text(picture, MARGIN, y + 28, "no longer there: " .. svg_flame.value_text(
      picture.types[picture.index], gone.value))
    local apart = setmetatable({ is_gone = true }, { __index = picture })
    y = svg_flame.draw(apart, gone, MARGIN, y + 36, false)
  end
  return draw_legend(picture, CHANGES, y + 26)
end

-- The meaning of the types of samples, in words.
local MEANING = {
  alloc_objects = "all blocks allocated so far", alloc_space = "all memory allocated so far",
  inuse_objects = "the blocks in use", inuse_space = "the memory in use",
}

-- Returns the line below the title: the type of sample and the time of the profile.
local function subtitle(picture, made)
  local kind = picture.types[picture.index]
  local words = kind.type .. (MEANING[kind.type] and ": " .. MEANING[kind.type] or "")
  if next(picture.colour) then words = words .. ", by tag (grey) and strategy (coloured)" end
  if made.is_difference then
    local now, change = 0, profile.total(made, picture.index)
    for _, sample in ipairs(made.samples) do
      now = now + sample.values[picture.index] + sample.before[picture.index]
    end
    words = ("%s: %s than in the base"):format(kind.type,
      svg_flame.change_text(kind, now, now - change))
  end
  local time = made.time_ns and os.date("!%Y-%m-%d %H:%M:%S UTC", made.time_ns / 1e9)
  return time and words .. ", " .. time or words
end

-- Returns the text of an SVG file.
---@param made loam.Profile
---@param index integer the position of the type of sample
---@return string
function svg.write(made, index)
  local picture = new_picture(made, index)
  local title = made.title or "loam profile"
  local height = (made.is_difference and draw_difference or draw_live)(picture, made, 68)
  put_text(picture, MARGIN, 34, svg_text.fit(title, 17, ROOM), "title")
  put_text(picture, MARGIN, 54, subtitle(picture, made), "faint")
  return ('<svg xmlns="http://www.w3.org/2000/svg" role="img" width="%d" height="%d" '
    .. 'viewBox="0 0 %d %d" style="max-width: 100%%; height: auto">\n<title>%s</title>\n'):format(
    WIDTH, height, WIDTH, height, svg_text.escape(title)) .. svg_style.sheet()
    .. ('<path class="page" d="M0 0H%dV%dH0Z"/>\n'):format(WIDTH, height)
    .. table.concat(picture.out) .. "</svg>\n"
end

return svg
