-- palette.lua - the colours and patterns of the picture that `loam pages` draws.
--
-- A state of memory is shown by darkness and pattern, so that the picture can be read without
-- colours: live memory is solid and dark, memory in thread caches is striped, free memory is light,
-- live blocks without memory are dotted, and address space without memory is white. A hue only
-- helps to tell strategies apart, which have their names beside them. The hues are from two sets
-- that people with colour-blindness tell apart: Okabe and Ito, "Color Universal Design" (2008), and
-- Tol, "Colour Schemes" (2021).

local svg = require("loam.command.pages.svg")

local palette = {
  ink = "#1f2328",    -- of words
  muted = "#59636e",  -- of words that matter less
  line = "#d1d9e0",
  paper = "#ffffff",
  neutral = "#57606a", -- of the legend
}

local HUES = { "#0072b2", "#d55e00", "#007a5a", "#aa4499", "#8a6100", "#332288" }

-- Returns the colour of the strategy with this number; numbers begin with 1.
function palette.hue(number)
  return HUES[(number - 1) % #HUES + 1]
end

-- Returns the patterns of one colour. Their names end with `name`.
local function patterns(name, colour)
  local stripes = svg.element("path", { { "d", "M0 0h4v4h-4z" }, { "fill", colour },
      { "fill-opacity", ".14" } })
    .. svg.element("path", { { "d", "M-1 1l2-2M0 4l4-4M3 5l2-2" }, { "stroke", colour },
      { "stroke-width", "1.2" } })
  local dots = svg.element("path", { { "d", "M1 1h1.2v1.2h-1.2z" }, { "fill", colour } })
  local function pattern(id, size, content)
    return svg.element("pattern", { { "id", id .. name }, { "width", size }, { "height", size },
      { "patternUnits", "userSpaceOnUse" } }, content)
  end
  return pattern("stripes", 4, stripes) .. pattern("dots", 3, dots)
end

-- Returns the patterns of the legend and of `n` strategies.
---@return string
function palette.definitions(n)
  local out = { patterns("", palette.neutral) }
  for number = 1, math.min(n, #HUES) do out[#out + 1] = patterns(number, HUES[number]) end
  return svg.element("defs", {}, table.concat(out))
end

-- Returns how each state of memory looks. `number` is of a strategy; nil: of the legend and of
-- memory that no strategy has.
---@return table attributes by state
function palette.looks(number)
  local colour = number and palette.hue(number) or palette.neutral
  local name = number and (number - 1) % #HUES + 1 or ""
  return {
    live = { { "fill", colour } },
    absent = { { "fill", ("url(#dots%s)"):format(name) } },
    cached = { { "fill", ("url(#stripes%s)"):format(name) } },
    free = { { "fill", colour }, { "fill-opacity", ".2" } },
    own = { { "fill", palette.ink } },
    huge = { { "fill", palette.ink } },
    frame = { { "fill", "none" }, { "stroke", colour }, { "stroke-opacity", ".55" },
      { "stroke-width", ".6" } },
  }
end

return palette
