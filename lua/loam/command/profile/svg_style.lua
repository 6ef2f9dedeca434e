-- svg_style.lua - the colours and the fonts of a flame graph.
--
-- The shapes have classes, so that the picture follows the dark mode of the reader.

local svg_style = {}

-- The colours of strategies, the largest strategy first: light and dark mode. Neighbours differ
-- also for people who do not tell red from green.
local STRATEGIES = {
  { "#d1440c", "#f0703c" }, { "#0969da", "#4a9bf5" }, { "#1a7f64", "#34b891" },
  { "#b8860b", "#e0ae36" }, { "#8250df", "#a98bf0" }, { "#bf3989", "#e272b4" },
  { "#57606a", "#9aa4ae" }, { "#3c8a9e", "#5fb6cc" },
}

-- How many strategies have a colour of their own.
svg_style.STRATEGIES = #STRATEGIES

-- The steps of a difference, from the least change to the greatest.
local MORE = { { "#fbe3da", "#4a2a1e" }, { "#f3b79f", "#7a3a20" }, { "#e67f55", "#b04e22" },
               { "#d1440c", "#f0703c" } }
local LESS = { { "#dbe9fb", "#1d2f4a" }, { "#a9cbf5", "#224a80" }, { "#5f9feb", "#2f6fc0" },
               { "#0969da", "#4a9bf5" } }

svg_style.STEPS = #MORE

-- The shades of functions: a function has one of them by its name, so that neighbours differ.
local NATIVE = { { "#fde3d3", "#5b3322" }, { "#fbd3bb", "#693a25" }, { "#f8c7a8", "#744027" },
                 { "#fbdcb4", "#664421" }, { "#f9d08f", "#71501f" } }
local PYTHON = { { "#dcebd0", "#2d4a2c" }, { "#cfe4c4", "#335532" }, { "#c0dcb6", "#395f38" } }

-- Returns the class of a function.
---@param name string
---@param kind string as in loam.ProfileFunction
---@return string
function svg_style.shade(name, kind)
  local sum, is_python = 0, kind == "python"
  for i = 1, #name do sum = (sum * 31 + name:byte(i)) % 65521 end
  return is_python and "python" .. sum % #PYTHON + 1 or "native" .. sum % #NATIVE + 1
end

local BASE = [[
  text { font: 12px system-ui, "Helvetica Neue", Arial, sans-serif; fill: %s }
  .title { font-size: 17px; font-weight: 600 }
  .faint { fill: %s }
  .page { fill: %s }
  .root { fill: %s }
  .tag { fill: %s }
  .deep { fill: %s }
  .small { fill: %s }
  .bright { fill: %s }
]]

local LIGHT = { "#1f2328", "#656d76", "#ffffff", "#d8dee4", "#e4e9ee", "#eef1f4", "#f0f2f4",
                "#ffffff" }
local DARK = { "#e6edf3", "#9198a1", "#0d1117", "#2f3843", "#262e38", "#1e252e", "#1a2028",
               "#0d1117" }

local function coloured(prefix, colours, mode)
  local out = {}
  for i, pair in ipairs(colours) do
    out[i] = ("  .%s%d { fill: %s }\n"):format(prefix, i, pair[mode])
  end
  return table.concat(out)
end

local function rules(base, mode)
  return BASE:format(unpack(base)) .. coloured("s", STRATEGIES, mode)
    .. coloured("native", NATIVE, mode) .. coloured("python", PYTHON, mode)
    .. coloured("more", MORE, mode) .. coloured("less", LESS, mode)
end

-- Returns the style sheet of a picture.
---@return string
function svg_style.sheet()
  return "<style>\n" .. rules(LIGHT, 1) .. "  @media (prefers-color-scheme: dark) {\n"
    .. rules(DARK, 2) .. "  }\n</style>\n"
end

return svg_style
