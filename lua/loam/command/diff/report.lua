-- report.lua - shows a comparison of two policies: as text, as JSON, as Markdown.

local escape = require("loam.command.diff.escape")
local impact_report = require("loam.command.diff.impact_report")
local json = require("loam.report.json")
local strategies = require("loam.command.diff.strategies")
local terminal = require("loam.command.terminal")
local units = require("loam.command.units")

local report = {}

local SIZE_MAX = 2 ^ 47 -- the largest size that a plan decides
local MOST_TAGS = 20    -- of a region in JSON

-- ---- what the forms share

-- Returns the number of differences of each kind: of regions, renamed strategies and others.
---@return table<string, integer>
function report.kinds(made)
  local kinds = {}
  local function add(kind, n) kinds[kind] = (kinds[kind] or 0) + n end
  for _, region in ipairs(made.regions) do add(region.kind, 1) end
  for _, entry in ipairs(made.strategies) do
    if entry.change == "renamed" then add("renamed", 1) end
  end
  if made.apply then add("apply", 1) end
  local undecided = #made.undecided + made.left_over
  if undecided > 0 then add("undecided", undecided) end
  return kinds
end

local function chain_words(chain)
  return escape.text(table.concat(strategies.names(chain), ", else "))
end

local function sizes_words(region)
  if region.from == region.to then return units.exact(region.from) end
  if region.to == SIZE_MAX then
    return region.from == 0 and "any size" or ">= " .. units.exact(region.from)
  end
  if region.from == 0 then return "< " .. units.exact(region.to + 1) end
  return ("%s to < %s"):format(units.exact(region.from), units.exact(region.to + 1))
end

local function tag_words(made, region)
  local tag, others = region.sites[1].tag, #region.sites - 1
  local words = tag == "" and '""' or escape.text(tag)
  if region.tags == "any" then return "any tag" end
  if region.tags == "other" then words = "other tags, such as " .. words end
  if others == 0 then return words end
  return ("%s and %s%s"):format(words, made.is_partial and "at least " or "",
    units.plural(others, "other class", "other classes"))
end

-- Lists the inputs of a witness that are not as in a plain request: { field, value }.
local function inputs_of(made, region)
  local list = {}
  for _, dim in ipairs(made.dims.list) do
    local value = dim.field and region.point[dim]
    if value and value ~= dim.default and dim.field ~= "size" then
      list[#list + 1] = { dim.field, value }
    end
  end
  return list
end

-- Returns the arguments with which `loam explain` shows a witness.
local function witness_words(made, region)
  local where, size = region.sites[1], region.point[made.dims.by_key["i0:0"]]
  local out = { "--tag " .. escape.shell(where.tag), ("--size %d"):format(size) }
  for _, field in ipairs { "file", "func", "module" } do
    if where[field] ~= "" then
      out[#out + 1] = "--" .. field .. " " .. escape.shell(where[field])
    end
  end
  for _, entry in ipairs(inputs_of(made, region)) do
    local kind, n = entry[1]:match("^(%l+)_free:(%d+)$")
    if kind then
      out[#out + 1] = ("--%s-free %s=%d"):format(kind, n, entry[2])
    elseif entry[1] == "zero" then
      out[#out + 1] = "--zero"
    else
      out[#out + 1] = ("--%s %d"):format(entry[1], entry[2])
    end
  end
  return table.concat(out, " ")
end

local BYTES = { limit = true, soft = true, align = true }

local function value_words(option, value)
  if value == nil then return "none" end
  if BYTES[option] and type(value) == "number" then
    return units.exact(value)
  end
  return type(value) == "table" and json.encode(value) or tostring(value)
end

local function options_words(options)
  local out = {}
  for i, entry in ipairs(options) do
    out[i] = ("%s %s -> %s"):format(entry.option, value_words(entry.option, entry.old),
      value_words(entry.option, entry.new))
  end
  return table.concat(out, ", ")
end

local function change_words(entry)
  if entry.change == "renamed" then return "renamed to " .. escape.text(entry.new.name) end
  if entry.change ~= "changed" then return entry.change end
  local words = options_words(entry.options)
  return "changed" .. (words == "" and "" or ": " .. escape.text(words))
end

local function strategy_words(entry)
  local words = change_words(entry)
  if not strategies.counts_anew(entry) then return words end
  return words .. " (its limit does not count memory that is live already)"
end

-- Returns the conditions of a region as a list: those on the site first.
local function where_list(region)
  local list = {}
  for _, words in ipairs(region.questions) do list[#list + 1] = words end
  for _, words in ipairs(region.conditions) do list[#list + 1] = words end
  return list
end

local function strategy_name(entry) return escape.text((entry.old or entry.new).name) end

local function undecided_count(made) return #made.undecided + made.left_over end

-- Returns the comparison in one line.
local function summary(made, paths)
  local kinds, parts = report.kinds(made), {}
  if #made.regions > 0 then
    parts[1] = units.plural(#made.regions, "region differs", "regions differ")
  end
  if kinds.denied then parts[#parts + 1] = kinds.denied .. " newly denied" end
  if kinds.renamed then
    parts[#parts + 1] = units.plural(kinds.renamed, "strategy", "strategies") .. " renamed"
  end
  if kinds.apply then parts[#parts + 1] = "apply differs" end
  if kinds.undecided then parts[#parts + 1] = units.count(kinds.undecided) .. " undecided" end
  if #parts == 0 then parts[1] = "every request gets equal memory" end
  return ("%s -> %s: %s"):format(terminal.plain(paths[1]), terminal.plain(paths[2]),
    table.concat(parts, ", "))
end

-- ---- text

local COLOUR = { denied = "red", fallback = "red", limits = "yellow", granted = "green" }

local function show_region(context, made, counted, region)
  local pad = (" "):rep(11)
  local kind = region.point and region.kind or "undecided"
  context.write(("%s  %s: %s\n"):format(context.paint(COLOUR[kind] or "cyan",
    kind .. (" "):rep(9 - #kind)), tag_words(made, region), sizes_words(region)))
  context.write(("%s%s -> %s\n"):format(pad, chain_words(region.old), chain_words(region.new)))
  if #region.options > 0 then
    context.write(pad .. "with " .. escape.text(options_words(region.options)) .. "\n")
  end
  local where = where_list(region)
  if #where > 0 then
    context.write(pad .. "where " .. escape.text(table.concat(where, " and ")) .. "\n")
  end
  if region.point then context.write(pad .. "witness " .. witness_words(made, region) .. "\n") end
  for i, line in ipairs(counted and impact_report.lines(counted, region) or {}) do
    context.write(pad .. (i == 1 and "blocks " or "       ") .. line .. "\n")
  end
end

local function show_text(context, made, paths, counted)
  context.write(summary(made, paths) .. "\n")
  for _, words in ipairs(counted and impact_report.sentences(counted) or {}) do
    context.write(words .. "\n")
  end
  for _, region in ipairs(made.regions) do show_region(context, made, counted, region) end
  for _, region in ipairs(made.undecided) do show_region(context, made, counted, region) end
  if made.left_over > 0 then
    context.write(("undecided  %s not compared, because there are too many\n"):format(
      units.plural(made.left_over, "part")))
  end
  for _, entry in ipairs(made.strategies) do
    context.write(("strategy   %s %s\n"):format(strategy_name(entry), strategy_words(entry)))
  end
  if made.apply then
    context.write(("apply      %s -> %s\n"):format(made.apply[1], made.apply[2]))
  end
end

-- ---- Markdown

local function row(cells)
  for i, cell in ipairs(cells) do cells[i] = escape.cell(cell) end
  return "| " .. table.concat(cells, " | ") .. " |\n"
end

local function markdown_region(made, counted, region)
  local when = where_list(region)
  if #region.options > 0 then when[#when + 1] = options_words(region.options) end
  local cells = { region.point and region.kind or "undecided", tag_words(made, region),
    sizes_words(region), table.concat(when, "; "), chain_words(region.old),
    chain_words(region.new), region.point and escape.code(witness_words(made, region)) or "" }
  if counted then cells[8], cells[9] = impact_report.cells(counted, region) end
  return row(cells)
end

local function show_markdown(context, made, paths, counted)
  context.write("**" .. escape.cell(summary(made, paths)) .. "**\n")
  for _, words in ipairs(counted and impact_report.sentences(counted) or {}) do
    context.write("\n" .. escape.cell((words:gsub("\n *", " "))) .. "\n")
  end
  if #made.regions + #made.undecided > 0 then
    local more = counted and " blocks so far | live |" or ""
    context.write("\n| | tags | sizes | when | old | new | witness |" .. more .. "\n")
    context.write("|---|---|---|---|---|---|---|" .. (counted and "---|---|" or "") .. "\n")
  end
  for _, region in ipairs(made.regions) do
    context.write(markdown_region(made, counted, region))
  end
  for _, region in ipairs(made.undecided) do
    context.write(markdown_region(made, counted, region))
  end
  if #made.strategies > 0 then context.write("\n| strategy | change |\n|---|---|\n") end
  for _, entry in ipairs(made.strategies) do
    context.write(row { strategy_name(entry), strategy_words(entry) })
  end
  if made.apply then
    context.write(("\n`apply`: %s -> %s\n"):format(made.apply[1], made.apply[2]))
  end
end

-- ---- JSON

local ORDER = {
  "verb", "version", "ok", "old", "new", "alike", "kinds", "regions", "undecided",
  "undecided_regions", "strategies", "apply", "kind", "change", "old_chain", "new_chain",
  "option", "options", "sizes", "from", "to", "conditions", "questions", "classes", "tags",
  "witness", "tag", "size", "align", "zero", "errors", "impact", "pids", "unread", "pid", "error",
  "blocks", "differ", "rows", "rows_left_out", "total_blocks", "total_bytes", "live_blocks",
  "live_bytes", "least", "most",
}

local function array(list) return json.array(list) end

local function options_json(options)
  local list = array {}
  for i, entry in ipairs(options) do
    list[i] = { option = entry.option, old = entry.old, new = entry.new }
  end
  return list
end

-- Puts a string of a site into an object. JSON has no bytes that are not UTF-8, so such a string
-- has its bytes in hexadecimal beside it.
local function set_text(object, field, text)
  object[field] = text
  if json.decode(json.encode(text)) ~= text then object[field .. "_hex"] = escape.hex(text) end
end

local function witness_json(made, region)
  local where, point = region.sites[1], region.point
  local object = { size = point[made.dims.by_key["i0:0"]], align = 16, zero = false }
  set_text(object, "tag", where.tag)
  for _, field in ipairs { "file", "func", "module" } do
    if where[field] ~= "" then set_text(object, field, where[field]) end
  end
  for _, entry in ipairs(inputs_of(made, region)) do
    local free, n = entry[1]:match("^(%l+_free):(%d+)$")
    if free then
      object[free] = object[free] or {}
      object[free][n] = entry[2]
    elseif entry[1] == "zero" then
      object.zero = entry[2] == 1
    else
      object[entry[1]] = entry[2]
    end
  end
  return object
end

local function region_json(made, counted, region)
  local tags = array {}
  for i = 1, math.min(#region.sites, MOST_TAGS) do tags[i] = region.sites[i].tag end
  return {
    kind = region.kind, old = region.old[1].name, new = region.new[1].name,
    old_chain = array(strategies.names(region.old)),
    new_chain = array(strategies.names(region.new)), options = options_json(region.options),
    sizes = { from = region.from, to = region.to }, conditions = array(region.conditions),
    questions = array(region.questions), classes = #region.sites, tags = tags,
    witness = region.point and witness_json(made, region) or nil,
    impact = counted and impact_report.region_json(counted, region) or nil,
  }
end

local function strategies_json(made)
  local list = array {}
  for i, entry in ipairs(made.strategies) do
    list[i] = { change = entry.change, old = entry.old and entry.old.name,
                new = entry.new and entry.new.name,
                options = entry.options and options_json(entry.options) }
  end
  return list
end

local function show_json(context, made, paths, counted)
  local kinds = report.kinds(made)
  local list, doubtful = array {}, array {}
  for i, region in ipairs(made.regions) do list[i] = region_json(made, counted, region) end
  for i, region in ipairs(made.undecided) do doubtful[i] = region_json(made, counted, region) end
  context.write(json.encode({
    verb = "diff", version = json.FORMAT, ok = true, old = paths[1], new = paths[2],
    alike = next(kinds) == nil,
    kinds = kinds, impact = counted and impact_report.json(counted) or nil,
    regions = list, undecided = undecided_count(made), undecided_regions = doubtful,
    strategies = strategies_json(made),
    apply = made.apply and { old = made.apply[1], new = made.apply[2] } or nil,
  }, ORDER) .. "\n")
end

-- ---- all forms

-- Shows a comparison in the form that the options ask for.
---@param given table options of the verb, and the names of the two policies
---@param counted loam.Impact|nil
function report.show(context, given, made, counted)
  local show = given.json and show_json or given.markdown and show_markdown or show_text
  show(context, made, given, counted)
end

-- Shows the errors of the policies that cannot be read.
function report.refused(context, given, errors)
  if given.json then
    context.write(json.encode({ verb = "diff", version = json.FORMAT, ok = false, old = given[1],
                                new = given[2], errors = json.array(errors) }, ORDER) .. "\n")
  else
    context.warn(terminal.faults(errors, context.paint_error))
  end
end

-- Returns the message about a witness that a policy does not confirm.
function report.doubt(made, region, path, reason)
  return ("a fault of loam: %s does not confirm %s -> %s for %s: %s"):format(terminal.plain(path),
    chain_words(region.old), chain_words(region.new), witness_words(made, region),
    terminal.plain(reason))
end

return report
