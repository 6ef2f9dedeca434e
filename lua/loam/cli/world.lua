-- world - all that a verb touches outside itself: the engine, the streams, the environment.

local world = {}

-- A reader that has gone away ends the command without a word, as a signal would have.
local function checked(ok, message)
  if ok then return end
  if message and message:find("Broken pipe", 1, true) then error({ silent = true }, 0) end
  error({ words = "cannot write: " .. (message or "unknown reason") }, 0)
end

-- What went wrong, for people: ends the verb with status 1.
local function fail(words)
  error({ words = words }, 0)
end

-- Whether it is a terminal is asked when there is something to paint.
local function painter(posix, fd)
  local paint
  return function(colour, text)
    if not paint then
      local wants_colour = (posix.getenv("NO_COLOR") or "") == "" and posix.getenv("TERM") ~= "dumb"
      local terminal = require("loam.cli.terminal")
      paint = terminal.painter(wants_colour and posix.is_terminal(fd))
    end
    return paint(colour, text)
  end
end

---@class loam.World
---@field api table loam.h
---@field posix table
---@field write fun(text: string) to standard output
---@field warn fun(text: string) to standard error
---@field paint fun(colour: string, text: string): string for standard output
---@field paint_error fun(colour: string, text: string): string for standard error
---@field fail fun(words: string)
---@field now fun(): number Unix time
---@field getenv fun(name: string): string|nil
---@field finish fun() after the last write

---@return loam.World
function world.new()
  local posix = require("loam.cli.posix")
  return {
    api = require("loam.cli.native"),
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

return world
