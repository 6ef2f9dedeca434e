-- svg.lua - the text of SVG elements: numbers, escaped words, rectangles joined to one path.

local json = require("loam.report.json")
local terminal = require("loam.command.terminal")

local svg = {}

local ENTITIES = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;" }

-- Makes any text safe in an SVG file. Names and tags come from another process: they may hold
-- bytes that are not UTF-8, and control characters, which XML forbids.
---@return string
function svg.escape(text)
  return (terminal.plain(json.repaired(text)):gsub('[&<>"]', ENTITIES))
end

-- Shortens a text to at most `most` characters; a shortened text ends with "...".
---@return string
function svg.shorten(text, most)
  local seen = 0
  for at in text:gmatch("()[^\128-\191]") do
    seen = seen + 1
    if seen == most - 2 then text = #text - at < 3 and text or { text:sub(1, at - 1) } end
    if type(text) == "table" then return text[1] .. "..." end
  end
  return text
end

-- Returns a coordinate with at most one digit after the point.
---@return string
function svg.number(n)
  return (("%.1f"):format(n):gsub("%.0$", ""):gsub("^%-0$", "0"))
end

-- Returns an element: its name, its attributes in the order given, and its content.
---@param attributes table pairs of a name and a value
---@param content string|nil
---@return string
function svg.element(name, attributes, content)
  local out = { "<" .. name }
  for _, pair in ipairs(attributes) do
    local value = type(pair[2]) == "number" and svg.number(pair[2]) or pair[2]
    out[#out + 1] = (' %s="%s"'):format(pair[1], value)
  end
  out[#out + 1] = content and (">%s</%s>\n"):format(content, name) or "/>\n"
  return table.concat(out)
end

-- Returns a line of text. `more` has further attributes.
---@return string
function svg.text(x, y, words, more)
  return svg.line(x, y, svg.escape(words), more)
end

-- Returns a line of elements such as `tspan`.
---@return string
function svg.line(x, y, content, more)
  local attributes = { { "x", x }, { "y", y } }
  for _, pair in ipairs(more or {}) do attributes[#attributes + 1] = pair end
  return svg.element("text", attributes, content)
end

-- Rectangles of one look, which become one element. A rectangle that continues the last one to the
-- right is joined with it, so that large blocks need few bytes.
local Shape = {}
Shape.__index = Shape

---@return table shape
function svg.shape()
  return setmetatable({}, Shape)
end

-- Adds a rectangle. One without an area is left out.
function Shape:add(x, y, width, height)
  if width < 0.05 or height < 0.05 then return end
  local last = self.last
  local is_beside = last and math.abs(last.x + last.width - x) < 0.05
  if is_beside and last.y == y and last.height == height then
    last.width = x + width - last.x
    return
  end
  self:flush()
  self.last = { x = x, y = y, width = width, height = height }
end

-- Writes the last rectangle.
function Shape:flush()
  local n, last = svg.number, self.last
  self.last = nil
  if not last then return end
  local width = n(last.width)
  self[#self + 1] = ("M%s %sh%sv%sh-%sz"):format(n(last.x), n(last.y), width, n(last.height), width)
end

-- Returns the element; an empty text if there is no rectangle.
---@return string
function Shape:text(attributes)
  self:flush()
  if #self == 0 then return "" end
  local all = { { "d", table.concat(self) } }
  for _, pair in ipairs(attributes) do all[#all + 1] = pair end
  return svg.element("path", all)
end

return svg
