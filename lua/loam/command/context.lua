-- context.lua - everything outside the command that a verb uses: the engine, the streams, the
-- environment. Specs pass verbs a context of canned answers instead.

local context = {}

-- Checks a write. If the reader of a pipe has ended, the command ends without a message, as a
-- signal would end it.
local function checked(ok, message)
  if ok then return end
  if message and message:find("Broken pipe", 1, true) then error({ silent = true }, 0) end
  error({ words = "cannot write: " .. (message or "unknown reason") }, 0)
end

-- Ends the verb with status 1 and a message for the user. `answer` is the JSON object that the verb
-- has nonetheless, or nil: with --json, the message is added to it.
local function fail(words, answer)
  error({ words = words, answer = answer }, 0)
end

-- Handler of xpcall. A table is an error with a message for the user; any other value is a fault of
-- the command itself, and gets a traceback. LuaJIT calls no handler where memory is short, but a
-- function that catches the error of LuaJIT may raise it once more: then it comes here.
local function with_trace(value)
  if type(value) == "table" then return value end
  if value == "not enough memory" then return { words = value } end
  return { fault = debug.traceback(tostring(value), 2) }
end

-- Calls a function. The error is a string where LuaJIT has called no handler.
---@return boolean ok
---@return any result of the function; if it failed, a table with `words` or `fault`
function context.try(run)
  local ok, result = xpcall(run, with_trace)
  if not ok and type(result) == "string" then result = { words = result } end
  return ok, result
end

-- Makes a function that colours text if `fd` is a terminal. Its first call finds that out.
local function painter(posix, fd)
  local paint
  return function(colour, text)
    if not paint then
      local no_colour = posix.getenv("NO_COLOR") or ""
      local wants_colour = no_colour == "" and posix.getenv("TERM") ~= "dumb"
      local terminal = require("loam.command.terminal")
      paint = terminal.painter(wants_colour and posix.is_terminal(fd))
    end
    return paint(colour, text)
  end
end

---@class loam.Context
---@field api table loam.h
---@field posix table
---@field write fun(text: string) to standard output
---@field warn fun(text: string) to standard error
---@field paint fun(colour: string, text: string): string for standard output
---@field paint_error fun(colour: string, text: string): string for standard error
---@field fail fun(words: string, answer: string|nil)
---@field now fun(): number Unix time
---@field getenv fun(name: string): string|nil
---@field finish fun() after the last write

---@return loam.Context
function context.new()
  local posix = require("loam.command.posix")
  return {
    api = require("loam.command.native"),
    posix = posix,
    write = function(text) checked(io.stdout:write(text)) end,
    warn = function(text) io.stderr:write(text) end,
    paint = painter(posix, 1),
    paint_error = painter(posix, 2),
    fail = fail,
    now = os.time,
    getenv = posix.getenv,
    finish = function() checked(io.stdout:flush()) end,
  }
end

return context
