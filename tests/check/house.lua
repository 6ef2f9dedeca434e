-- house.lua - what every source file keeps to: its length, its first line, its columns, the names
-- it gives to the world, and that nothing is left for later.
package.path = "tests/check/?.lua;" .. package.path
local files = require("_files")

local LINES_C, LINES_LUA, COLUMNS, NAME = 900, 600, 100, 24

local function count_lines(path)
  local _, count = files.read(path):gsub("\n", "")
  return count
end

-- In characters, so that what is written in other alphabets counts as it is seen.
local function width(line) return select(2, line:gsub("[^\128-\191]", "")) end

local function check_text(path)
  files.each_line(path, function(line, number)
    local where = path .. ":" .. number
    if width(line) > COLUMNS then files.complain(where, "%d columns", width(line)) end
    if line:find("[ \t]$") then files.complain(where, "space at the end") end
    if line:find("\t") then files.complain(where, "a tab") end
    for word in line:gmatch("%f[%w_][A-Z]+%f[^%w_]") do
      if word == "TO" .. "DO" or word == "FIX" .. "ME" or word == "XX" .. "X" then
        files.complain(where, "%s: do it, or do not say it", word)
      end
    end
  end)
end

local function check_c(path)
  local base = path:match("[^/]+$")
  local head = files.read(path):match("^[^\n]*")
  if head:sub(1, #base + 6) ~= "/* " .. base .. " - " then
    files.complain(path .. ":1", "opens with /* %s - what it is. */", base)
  end
  if count_lines(path) > LINES_C then files.complain(path, "over %d lines", LINES_C) end
end

local function check_lua(path)
  if not files.read(path):match("^%-%- ") then
    files.complain(path .. ":1", "opens with -- and what it is")
  end
  if count_lines(path) > LINES_LUA then files.complain(path, "over %d lines", LINES_LUA) end
end

local c = files.find("core bindings examples tests", "c h cc")
local lua = files.find("lua tests cmake policies", "lua")
for _, path in ipairs(c) do check_text(path) check_c(path) end
for _, path in ipairs(lua) do check_text(path) check_lua(path) end

for name in files.read("core/include/loam.h"):gmatch("%f[%w_]loam_[%w_]+") do
  if #name > NAME then
    files.complain("core/include/loam.h", "%s: over %d characters", name, NAME)
  end
end
files.finish(("%d files of C, %d of Lua"):format(#c, #lua))
