-- formats.lua - the formats of `loam profile`: how each is written, and how its files are named.

local collapsed = require("loam.command.profile.collapsed")
local gzip = require("loam.command.profile.gzip")
local pprof = require("loam.command.profile.pprof")
local speedscope = require("loam.command.profile.speedscope")
local svg = require("loam.command.profile.svg")
local text = require("loam.command.profile.text")

---@class loam.ProfileFormat
---@field write fun(made: loam.Profile, exporter: string): string
---@field ending fun(): string of the names of files
---@field is_binary boolean|nil whether the text is not for terminals
---@field is_for_reading boolean|nil whether it is written to standard output without -o

---@type table<string, loam.ProfileFormat>
local formats = {}

formats.pprof = {
  write = pprof.write,
  ending = function() return gzip.is_there() and "pb.gz" or "pb" end,
  is_binary = true,
}

formats.speedscope = {
  write = speedscope.write,
  ending = function() return "speedscope.json" end,
}

formats.collapsed = {
  write = function(made) return collapsed.write(made, made.default) end,
  ending = function() return "collapsed" end,
}

formats.svg = {
  write = function(made) return svg.write(made, made.default) end,
  ending = function() return "svg" end,
}

formats.text = {
  write = function(made) return text.write(made, made.default) end,
  ending = function() return "txt" end,
  is_for_reading = true,
}

return formats
