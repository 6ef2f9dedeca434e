-- owner.lua - says whose memory the addresses of a running program are.

local arguments = require("loam.command.arguments")
local describe = require("loam.command.describe")
local hosts = require("loam.command.hosts")
local json = require("loam.report.json")
local terminal = require("loam.command.terminal")
local units = require("loam.command.units")

local owner = {
  summary = "says whose memory an address of a running program is",
  usage = "PID ADDRESS... [--json]",
  takes = { name = "PID", least = 1 },
  about = [[
Says what the addresses in a crash report, a debugger or a log are in a running
program. An address has hexadecimal digits, with or without 0x, and may point
into the middle of a block. The answer has one line for each: the tag and
strategy of the block, its size and start, the offset in it, and the NUMA node.
An address in no live block is a block that was freed, a guard page, memory of
loam itself, a library, a stack, or not mapped. The command reads the memory of
the program from outside; the program does nothing for that, and may be
stopped. Exit status: 0 if each address is in a live block of loam, else 1.]],
  options = { { "json", nil, "the answer as a JSON object" } },
  example = [[
  $ loam owner 4242 7f31c2a45010
  0x7f31c2a45010: live: tag x.y, strategy plain: offset 16 of 64 bytes at ...
]],
}

-- ---- Words

local function block_text(found)
  local tag = found.tag and "tag " .. describe.tag(found.tag) or "no tag known"
  return ("%s, strategy %s"):format(tag, terminal.plain(found.strategy or "?"))
end

-- Returns the place in the program that requested a block, as " (main.c:12, f)"; or nothing.
local function site_text(found)
  local place = found.file and found.file .. (found.line and ":" .. ("%d"):format(found.line) or "")
  local parts = {}
  for _, part in ipairs { place or false, found.func or false } do
    if part then parts[#parts + 1] = part end
  end
  return #parts > 0 and " (" .. terminal.plain(table.concat(parts, ", ")) .. ")" or ""
end

local function size_text(found)
  return ("%s at %s"):format(units.plural(found.size, "byte"), found.start)
end

local function inside_text(found)
  return ("offset %s of %s"):format(units.count(found.offset), size_text(found))
end

-- Returns where an address in the slots of a guarded block is: before the block, behind it or in
-- it.
local function beside_text(found)
  if found.offset < 0 then
    return ("%s before %s"):format(units.plural(-found.offset, "byte"), size_text(found))
  elseif found.offset >= found.size then
    return ("%s behind %s"):format(
      units.plural(found.offset - found.size, "byte"), size_text(found))
  end
  return inside_text(found)
end

local function mapping_text(found)
  local mapping = found.mapping
  local name = mapping.name == "" and "memory that the program mapped itself" or mapping.name
  local at = mapping.file_offset and (", offset 0x%x"):format(mapping.file_offset) or ""
  return terminal.plain(name) .. at .. ", " .. mapping.access
end

local WORDS = {
  live = function(found)
    return "live: " .. block_text(found) .. site_text(found) .. ": " .. inside_text(found)
  end,
  cached = function(found)
    return "freed, kept for reuse: was " .. block_text(found) .. ": " .. inside_text(found)
  end,
  free = function(found)
    if not found.tag then return "free, no block was there: " .. inside_text(found) end
    return "freed: was " .. block_text(found) .. ": " .. inside_text(found)
  end,
  quarantine = function(found)
    return "freed, in quarantine: was " .. block_text(found) .. ": " .. beside_text(found)
  end,
  guard = function(found)
    return "guard: " .. block_text(found) .. ": " .. beside_text(found)
  end,
  metadata = function() return "loam's own tables" end,
  region = function() return "in loam's address space, but in no block" end,
  changing = function() return "in memory that loam was changing" end,
  stack = function(found) return ("the stack of thread %d"):format(found.thread) end,
  mapping = function(found) return "not loam's: " .. mapping_text(found) end,
  unmapped = function() return "not mapped" end,
}

local HUGE = { all = ", on huge pages", some = ", some of its mapping on huge pages", none = "" }

local function line_of(found)
  local node = found.node and (", node %d"):format(found.node) or ""
  return ("%s: %s%s%s"):format(found.address, WORDS[found.state](found), node,
    HUGE[found.huge or "none"])
end

-- ---- The verb

-- Returns the digits of an address, or raises a usage error.
local function digits_of(text)
  local digits = text:match("^0[xX](%x+)$") or text:match("^(%x+)$")
  local short = digits and digits:gsub("^0+", "")
  if not short or #short > 16 then
    arguments.misused(("'%s' is not an address; write hexadecimal digits, such as 7f31c2a45010")
      :format(arguments.plain(text)))
  end
  return short == "" and "0" or short
end

function owner.run(context, given)
  local pid, addresses = hosts.pid(given[1]), {}
  if #given < 2 then arguments.misused("ADDRESS is missing") end
  for i = 2, #given do addresses[i - 1] = digits_of(given[i]) end
  local text, words = context.api.owner(pid, addresses)
  if not text then context.fail(words) end
  local status = 0
  for _, found in ipairs(json.decode(text).addresses) do
    if not given.json then context.write(line_of(found) .. "\n") end
    if found.state ~= "live" then status = 1 end
  end
  if given.json then
    context.write(('{"ok":%s,'):format(tostring(status == 0)) .. text:sub(2) .. "\n")
  end
  return status
end

return owner
