-- exposition.lua - writes figures in the two formats that Prometheus reads.
--
-- "openmetrics" is OpenMetrics 1.0.0. "text" is Prometheus's text format 0.0.4, which node_exporter
-- and promtool read; they reject the type `info` of OpenMetrics. Lines of samples are equal in both
-- formats. The formats differ in the lines above the samples, and OpenMetrics ends with `# EOF`.

local json = require("loam.report.json")

local exposition = {}

-- The formats' values of the HTTP header Content-Type.
exposition.CONTENT_TYPE = {
  openmetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8",
  text = "text/plain; version=0.0.4; charset=utf-8",
}

-- The samples of one name, their type, their unit and their explanation.
---@class loam.MetricFamily
---@field name string without the suffix that samples of its type have
---@field type "gauge"|"counter"|"info"
---@field unit string|nil the last word of the name
---@field help string one line of plain text
---@field samples string[] pairs: the text of the labels, the text of the value

local SUFFIX = { gauge = "", counter = "_total", info = "_info" }

-- Both formats escape these three characters, and allow any other UTF-8 in the value of a label.
local ESCAPES = { ["\\"] = "\\\\", ['"'] = '\\"', ["\n"] = "\\n" }

-- Returns labels as text: `a="1",b="2"`. A byte that is no UTF-8 is as in JSON.
---@param ... string names and values, one after the other
---@return string
function exposition.labels(...)
  local given, out = { ... }, {}
  for i = 1, #given, 2 do
    local value = json.repaired(given[i + 1]):gsub('[\\"\n]', ESCAPES)
    out[#out + 1] = given[i] .. '="' .. value .. '"'
  end
  return table.concat(out, ",")
end

-- Returns a number as text. Whole numbers have no exponent.
---@return string
function exposition.number(n)
  if n ~= n then return "NaN" end
  if n == math.huge then return "+Inf" end
  if n == -math.huge then return "-Inf" end
  if n == math.floor(n) and math.abs(n) < 2 ^ 63 then return ("%.0f"):format(n) end
  local short = ("%.14g"):format(n)
  return tonumber(short) == n and short or ("%.17g"):format(n)
end

local HEAD = {}

function HEAD.openmetrics(family, out)
  out[#out + 1] = ("# TYPE %s %s\n"):format(family.name, family.type)
  if family.unit then out[#out + 1] = ("# UNIT %s %s\n"):format(family.name, family.unit) end
  out[#out + 1] = ("# HELP %s %s\n"):format(family.name, family.help)
end

function HEAD.text(family, out)
  local name = family.name .. SUFFIX[family.type]
  out[#out + 1] = ("# HELP %s %s\n"):format(name, family.help)
  out[#out + 1] = ("# TYPE %s %s\n"):format(name, family.type == "info" and "gauge" or family.type)
end

local function add_samples(family, out)
  local name, samples = family.name .. SUFFIX[family.type], family.samples
  for i = 1, #samples, 2 do
    local labels = samples[i]
    local at = labels == "" and name .. " " or name .. "{" .. labels .. "} "
    out[#out + 1] = at .. samples[i + 1] .. "\n"
  end
end

-- Returns a whole page. Families without samples are left out.
---@param families loam.MetricFamily[]
---@param format "openmetrics"|"text"
---@return string
function exposition.page(families, format)
  local out = {}
  for _, family in ipairs(families) do
    if #family.samples > 0 then
      HEAD[format](family, out)
      add_samples(family, out)
    end
  end
  if format == "openmetrics" then out[#out + 1] = "# EOF\n" end
  return table.concat(out)
end

return exposition
