-- textfile.lua - keeps a page in the folder that node_exporter's textfile collector reads.
--
-- A page is written to a file beside it, whose name the collector does not read, and then renamed
-- over the old page. So the collector finds a whole page, whenever it reads. If a page cannot be
-- written, the old one stays; its time of change tells its age.

local pages = require("loam.command.metrics.pages")

local textfile = {}

-- Writes a text to a new file. Returns true, or nil and the reason.
local function write_file(path, text)
  os.remove(path)
  local file, words = io.open(path, "wx") -- "x": a symbolic link is not followed
  if not file then return nil, words end
  local ok, why = file:write(text)
  if ok then ok, why = file:flush() end
  file:close()
  if ok then return true end
  os.remove(path)
  return nil, path .. ": " .. why
end

-- Replaces the page at `path`. Returns true, or nil and the reason.
local function replace(path, beside, text)
  local ok, words = write_file(beside, text)
  if not ok then return nil, words end
  ok, words = os.rename(beside, path)
  if not ok then os.remove(beside) end
  return ok, words
end

-- Writes the page each `every_ms` until Ctrl-C or SIGTERM, then removes it. If the first page
-- cannot be written, the command fails. If a later one cannot, a line says so, once until a page is
-- written again.
---@param context loam.Context
---@param folder string
---@param every_ms number
---@param source loam.Pages
function textfile.run(context, folder, every_ms, source)
  local path = folder:gsub("(.)/+$", "%1") .. "/loam.prom"
  local beside = ("%s.%d.new"):format(path, context.posix.process())
  local was_written, has_failed, is_over = false, false, context.posix.wait(0)
  while not is_over do
    local begin = context.posix.clock()
    local ok, words = replace(path, beside, pages.get(source, "text"))
    if not ok and not was_written then context.fail("cannot write the page: " .. words) end
    if not ok and not has_failed then
      context.warn("loam metrics: cannot write the page, the old one stays: " .. words .. "\n")
    end
    was_written, has_failed = was_written or ok, not ok
    local spent = context.posix.clock() - begin
    is_over = context.posix.wait(math.max(0, every_ms - spent))
  end
  if was_written then os.remove(path) end
end

return textfile
