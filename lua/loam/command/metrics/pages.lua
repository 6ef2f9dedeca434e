-- pages.lua - makes the page of figures in a format, and keeps it for a moment.

local collector = require("loam.command.metrics.collector")
local exposition = require("loam.command.metrics.exposition")
local families = require("loam.command.metrics.families")

local pages = {}

local KEPT_MS = 1000 -- several scrapers within that time get one page

pages.BUDGET_MS = 5000 -- for the figures of all processes; Prometheus waits 10 s by default

---@class loam.Pages
---@field context loam.Context
---@field collector loam.Collector
---@field families loam.MetricFamily[]|nil of the last page
---@field made_at number|nil ms of the clock
---@field text table<string, string> the last page, by its format

---@param tags number series of tags that a process may have
---@return loam.Pages
function pages.new(context, tags)
  return { context = context, collector = collector.new(context, tags), text = {} }
end

local function refresh(self, budget_ms)
  local clock = self.context.posix.clock
  local begin = clock()
  local list = collector.collect(self.collector, budget_ms)
  local now = clock()
  local times = { clock = now, unix = self.context.now(), spent_ms = now - begin }
  self.families = families.of(list, times, self.context.api.version(), self.collector.others)
  self.made_at, self.text = now, {}
end

---@param format "openmetrics"|"text"
---@param budget_ms number|nil the time that may pass before the figures are there; nil: BUDGET_MS
---@return string
function pages.get(self, format, budget_ms)
  if not self.made_at or self.context.posix.clock() - self.made_at >= KEPT_MS then
    refresh(self, budget_ms or pages.BUDGET_MS)
  end
  local text = self.text[format] or exposition.page(self.families, format)
  self.text[format] = text
  return text
end

return pages
