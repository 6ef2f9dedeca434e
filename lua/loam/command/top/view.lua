-- view.lua - the lines of `loam top`: sums, a table of groups, help. All texts of other programs
-- are made safe to show.

local boards = require("loam.command.boards")
local columns = require("loam.command.top.columns")
local terminal = require("loam.command.terminal")
local units = require("loam.command.units")

local view = {}

local NAME_LEAST, NAME_MOST = 8, 32 -- characters that names keep on a narrow terminal

view.HELP = {
  "loam top: the memory of programs under loam. The programs do nothing for it.",
  "",
  "  q, Ctrl-C        quit",
  "  g, Tab           next grouping: tag, strategy, node, process, service",
  "  1 2 3 4 5        these groupings",
  "  < > left right   sort by the column before, or behind",
  "  r                reverse the order",
  "  /                show only names with a text; Enter keeps it, Esc removes it",
  "  space            freeze, and go on",
  "  up down PgUp PgDn Home End   move through the rows",
  "  h ?              this help; any key leaves it",
  "",
  "LIVE       memory in use now",
  "ASLEEP     the part of LIVE whose device memory loam_sleep has given back",
  "BYTES/S    memory that was allocated in a second, between the last two looks",
  "LIMIT      the strategy nearest to its limit, all its tags together, in one",
  "           process, or in all processes that share the limit",
  "GROWN      LIVE less what it was at the first look of this view",
  "PEAK       the most that this view has seen in LIVE while top ran",
  "FALLBACKS  requests that a fallback served; by strategy: served for others",
  "FAILED     requests that got no memory; by strategy: that it could not serve",
  "SHORTFALL  memory on other nodes, or on smaller pages, than the policy asks for",
  "AGE        since the last look; looks at large programs are made less often",
  "IN MEMORY  pages of loam on a node, with memory that is kept for reuse",
}

-- ---- Sums

local function rate_text(total)
  if not total.bytes_per_s then return "" end
  return ("; %s/s in %s/s"):format(units.bytes(total.bytes_per_s),
    units.plural(math.floor(total.blocks_per_s + 0.5), "block"))
end

local function asleep_text(total)
  return total.asleep_bytes and (" (%s asleep)"):format(units.bytes(total.asleep_bytes)) or ""
end

-- Returns the name of a policy, which may have none.
local function name_of(policy)
  if policy.name ~= "" then return policy.name end
  return policy.hash:find("^0+$") and "built-in default" or "without a name"
end

local function policies_text(total)
  local out = {}
  for i, policy in ipairs(total.policies) do
    out[i] = ("%s %s in %d"):format(name_of(policy),
      policy.hash, policy.processes)
  end
  if #out == 0 then return nil end
  return (#out == 1 and "policy " or "policies ") .. table.concat(out, ", ")
end

local function unreadable_text(total)
  local n = #total.unreadable
  if n == 0 then return nil end
  local first = total.unreadable[1]
  local more = n > 1 and (" (and %s)"):format(units.plural(n - 1, "other")) or ""
  return ("not read: %s: %s%s"):format(first.program, first.error, more)
end

-- Returns the words about programs whose control group is short of memory; nil: there are none.
local function short_text(total)
  local n = #total.short
  if n == 0 then return nil end
  local first = total.short[1]
  local more = n > 1 and (" (and %s)"):format(units.plural(n - 1, "other")) or ""
  return ("memory is short: the control group of %s waits for it %d%% of the time%s"):format(
    first.program, first.pressure.stalled, more)
end

-- Returns the words about programs of other versions; nil: there are none.
local function others_text(others)
  if #others == 0 then return nil end
  return ("not shown: programs on %s of another version of loam"):format(
    units.plural(#others, "board"))
end

-- Returns the lines above the table.
function view.sums(model)
  local total, others = model.total, model.collected and model.collected.others or {}
  if total.processes == 0 then
    return { model.is_named and "the programs have ended" or boards.none_words(others),
             others_text(others) }
  end
  local lines = {
    ("%s, %s live%s in %s%s"):format(units.plural(total.processes, "process", "processes"),
      units.bytes(total.live_bytes), asleep_text(total), units.plural(total.live_blocks, "block"),
      rate_text(total)),
    ("%s, %s, %s, shortfall %s"):format(units.plural(total.fallbacks, "fallback"),
      units.count(total.failed) .. " failed", units.count(total.denied) .. " denied",
      units.bytes(total.shortfall_bytes)),
  }
  lines[#lines + 1] = policies_text(total)
  lines[#lines + 1] = short_text(total)
  lines[#lines + 1] = unreadable_text(total)
  lines[#lines + 1] = others_text(others)
  for i, line in ipairs(lines) do lines[i] = terminal.plain(line) end
  return lines
end

-- ---- The table

-- Returns the texts of a group, or the reason why its process cannot be read.
local function cells_of(group, list, by)
  local cells = {}
  for i, one in ipairs(list) do cells[i] = one.text(group) end
  local process = group.process
  if by == "process" and process.error and not process.looked_at then
    return { cells[1], cells[2], terminal.plain(process.error), is_reason = true }
  end
  return cells
end

local function widths_of(rows, columns_n)
  local widths = {}
  for _, cells in ipairs(rows) do
    for i = 1, columns_n do
      if not cells.is_reason or i <= 2 then
        widths[i] = math.max(widths[i] or 0, terminal.width(cells[i]))
      end
    end
  end
  return widths
end

-- Makes the column of names narrower, so that the others fit into a line of `most` characters.
local function fit(widths, list, most)
  local sum, name = -2, nil
  for i, one in ipairs(list) do
    if not one.is_rest then sum = sum + widths[i] + 2 end
    if one.is_name then name = i end
  end
  if sum <= most then return end
  local least = math.max(NAME_LEAST, math.min(NAME_MOST, math.floor(most / 3), widths[name]))
  widths[name] = math.max(least, widths[name] - (sum - most))
end

-- Returns a cell as wide as its column.
local function fitted(cell, width, right)
  return terminal.padded(terminal.shortened(cell, width), width, right)
end

local function line_of(cells, widths, list)
  local out = {}
  for i, cell in ipairs(cells) do
    out[i] = cells.is_reason and i > 2 and cell or fitted(cell, widths[i], list[i].right)
  end
  return terminal.trimmed(table.concat(out, "  "))
end

local function head_of(list, sort, reverse)
  local cells = {}
  for i, one in ipairs(list) do
    local is_down = not one.is_text ~= reverse
    cells[i] = one.head .. (one.id == sort and (is_down and " v" or " ^") or "")
  end
  return cells
end

-- Returns the lines of a table, its heads first, and which of the lines are of ended groups.
---@param groups loam.TopGroup[] in the order of the lines
---@param most integer|nil characters of a line; nil: any number
function view.table(groups, by, sort, reverse, most)
  local list = columns.shown(by, groups)
  local rows, ended = { head_of(list, sort, reverse) }, {}
  for i, group in ipairs(groups) do
    rows[i + 1] = cells_of(group, list, by)
    ended[i + 1] = group.ended
  end
  local widths = widths_of(rows, #list)
  if most then fit(widths, list, most) end
  local lines = {}
  for i, cells in ipairs(rows) do lines[i] = line_of(cells, widths, list) end
  return lines, ended
end

-- ---- The screen

local KEYS = "q quit  h help  g group  < > sort  r reverse  / filter  space freeze"

local function status_line(model)
  local out = { "by " .. model.by, "every " .. model.every_text }
  if model.is_frozen then table.insert(out, 1, "FROZEN") end
  if model.filter ~= "" then out[#out + 1] = "filter " .. terminal.plain(model.filter) end
  return table.concat(out, ", ")
end

-- Returns the line at the bottom; nil: there is no place for it.
local function bottom_line(model, rows)
  if model.mode == "filter" then return "filter: " .. terminal.plain(model.input) .. "_" end
  return rows >= 8 and KEYS or nil
end

-- Returns the lines above the table, as many as a terminal with so many rows has place for.
local function top_lines(model, rows)
  local lines = view.sums(model)
  table.insert(lines, 1, "loam top " .. status_line(model))
  if rows < 5 then return {} end
  if rows < 12 then return { lines[rows < 8 and not model.is_frozen and 2 or 1] } end
  return lines
end

local function help_lines(columns_n, rows)
  local lines = {}
  for i = 1, math.min(rows, #view.HELP) do lines[i] = terminal.cut(view.HELP[i], columns_n) end
  return lines
end

-- Returns the lines of the whole screen, each of at most so many characters, and how many rows of
-- the table are shown.
---@return string[], integer
function view.screen(model, columns_n, rows, paint)
  if model.mode == "help" then return help_lines(columns_n, rows), 0 end
  local out, bottom = {}, bottom_line(model, rows)
  for i, line in ipairs(top_lines(model, rows)) do
    out[i] = paint(i == 1 and "cyan" or "dim", terminal.cut(line, columns_n))
  end
  local room = math.max(0, rows - #out - 1 - (bottom and 1 or 0))
  local shown = model.rows(room)
  local lines, ended = view.table(shown, model.by, model.sort, model.reverse, columns_n)
  for i, line in ipairs(lines) do
    line = terminal.shortened(line, columns_n)
    if i == 1 then line = paint("bold", line)
    elseif ended[i] then line = paint("dim", line) end
    if #out < rows then out[#out + 1] = line end
  end
  while bottom and #out < rows - 1 do out[#out + 1] = "" end
  if bottom then out[math.min(rows, #out + 1)] = paint("dim", terminal.cut(bottom, columns_n)) end
  return out, room
end

return view
