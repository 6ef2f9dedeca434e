-- house.lua - the rules that every source file must keep: its length and the length of its
-- functions, its first line, its columns, the lengths of public names, no #if inside a body, no
-- notes about work to do, and the function by which it reads the environment.
package.path = "tests/check/?.lua;" .. package.path
local files = require("_files")

-- The public interface is one file, and mostly prose.
local LONGER = { ["core/include/loam.h"] = 1600 }
local LINES_C, LINES_LUA, LINES_FUNCTION, COLUMNS, NAME = 900, 600, 80, 100, 24

local function count_lines(path)
  local _, count = files.read(path):gsub("\n", "")
  return count
end

-- Returns the width in characters, so that a letter of another alphabet counts as one.
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

-- A body begins on a line that ends in ") {" and ends on one that is "}".
local function check_bodies(path)
  local start
  files.each_line(path, function(line, number)
    if line:find("^[%a_].*%) {$") or line == "{" then start = start or number end
    if not start then return end
    local where = path .. ":" .. start
    if line:find("^#%s*if") then files.complain(path .. ":" .. number, "#if inside a body") end
    if line:find("^}") then
      if number - start >= LINES_FUNCTION then
        files.complain(where, "a function of %d lines", number - start + 1)
      end
      start = nil
    end
  end)
end

local function check_c(path)
  local name, ending = path:match("([%w_]+)(%.%w+)$")
  local head = files.read(path):match("^/[/*] ([^\n]-) %- ")
  if head ~= name .. ending then
    files.complain(path .. ":1", "opens with /* %s%s - what it is. */", name, ending)
  end
  local most = LONGER[path] or LINES_C
  if count_lines(path) > most then files.complain(path, "over %d lines", most) end
end

local function check_lua(path)
  if not files.read(path):match("^%-%- ") then
    files.complain(path .. ":1", "opens with -- and what it is")
  end
  if count_lines(path) > LINES_LUA then files.complain(path, "over %d lines", LINES_LUA) end
end

-- In a set-user-ID program getenv returns text of the user who started it; secure_getenv does not.
-- The core calls it at one place, in the port of the operating system.
local function check_environment(path, name, instead)
  files.each_line(path, function(line, number)
    if line:find("%f[%w_]" .. name .. "%(") then
      files.complain(path .. ":" .. number, "reads the environment by %s: use %s", name, instead)
    end
  end)
end

for _, path in ipairs(files.find("core", "c h")) do
  check_environment(path, "getenv", "lm_sys_getenv")
  if not path:find("sys_linux%.c$") then
    check_environment(path, "secure_getenv", "lm_sys_getenv")
  end
end
for _, path in ipairs(files.find("bindings/preload", "c h")) do
  check_environment(path, "getenv", "secure_getenv")
end
for _, path in ipairs(files.find("lua bindings", "lua lua.in")) do
  check_environment(path, "os%.getenv", "what stands in posix.lua or native.lua.in")
end

local c = files.find("core bindings examples tests", "c h cc hpp")
local lua = files.find("lua tests cmake policies bindings", "lua")
for _, path in ipairs(c) do check_text(path) check_c(path) check_bodies(path) end
for _, path in ipairs(lua) do check_text(path) check_lua(path) end

for _, path in ipairs(files.find("bindings tests examples", "py pyi")) do check_text(path) end

for name in files.read("core/include/loam.h"):gmatch("%f[%w_]loam_[%w_]+") do
  if #name > NAME then
    files.complain("core/include/loam.h", "%s: over %d characters", name, NAME)
  end
end
files.finish(("%d files of C, %d of Lua"):format(#c, #lua))
