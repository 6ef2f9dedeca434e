-- check.lua - the answer to `check`: the faults that a load would find, strategies, warnings.

local answer = require("loam.questions.answer")
local core = require("loam.core")
local diag = require("loam.report.diag")
local json = require("loam.report.json")
local leaves = require("loam.questions.leaves")
local options = require("loam.language.options")
local policy = require("loam.compiler.policy")
local query = require("loam.questions.query")
local request = require("loam.symbolic.request")
local site = require("loam.symbolic.site")
local strategy = require("loam.language.strategy")
local unreached = require("loam.questions.unreached")

local check = {}

-- Returns a warning if the kernel, or a container, refuses a call that a strategy needs.
local function refusal_of(values)
  local numa = values.numa
  if not (numa or values.prefault or values.lock or values.huge) then return nil end
  local refused_here, places = core.refused(), #options.machine().nodes > 1
  if refused_here.numa and places and numa and numa.mode ~= "local" then
    return "mbind is refused here: numa needs it, so the fallback serves, or requests fail"
  end
  if refused_here.prefault and values.prefault then
    return "madvise is refused here: prefault needs it, so the fallback serves, or requests fail"
  end
  if refused_here.lock and values.lock then
    return "mlock is refused here: lock needs it, so the fallback serves, or requests fail"
  end
  if refused_here.huge and values.huge == "thp" then
    return "madvise is refused here: its memory has small pages instead of huge ones"
  end
  return nil
end

-- Returns a warning if a strategy demands reserved huge pages of nodes that have none.
local function unreserved(values)
  local numa, size = values.numa, values.huge
  if not numa or numa.mode ~= "bind" or size ~= "2MiB" and size ~= "1GiB" then return nil end
  for _, node in ipairs(numa.nodes) do
    if (core.huge_pages(node)[size] or 0) > 0 then return nil end
  end
  local which = (#numa.nodes == 1 and "node " or "nodes ") .. table.concat(numa.nodes, ", ")
  return ("no %s huge pages are reserved on %s (nr_hugepages in /sys/devices/system/node reserves "
    .. "them); its fallback serves instead"):format(size, which)
end

-- Returns a warning if this machine serves a strategy otherwise than the policy asks.
local function warning_of(member)
  local machine, values = options.machine(), member.values
  if member.reason then return member.reason .. "; its fallback serves instead" end
  if values.huge == "thp" and machine.thp_disabled then
    return "transparent huge pages are switched off for this process (PR_SET_THP_DISABLE)"
  end
  if values.huge == "thp" and machine.thp == "never" then
    return "transparent huge pages are switched off here "
      .. "(/sys/kernel/mm/transparent_hugepage/enabled is never)"
  end
  if values.lock and machine.memlock < 2 ^ 20 then
    return "at most " .. machine.memlock .. " bytes may be locked here (ulimit -l)"
  end
  return unreserved(values) or refusal_of(values)
end

local PAGE = 4096

-- Returns the reason and the suggestion of a warning about an option that is a number of bytes; nil
-- if the number is plausible.
local function limit_mistake(option, bytes)
  if not bytes or bytes >= PAGE then return nil end
  return ("%s = %d is in bytes, and less than a page"):format(option, bytes),
    ("did you mean %d * loam.MiB?"):format(bytes)
end

-- Calls `warn(member, class, reason, suggestion)` for each probable mistake about a strategy.
-- `first` has the first member of each name so far.
local function each_mistake(member, first, warn)
  local older = first[member.name]
  if older and strategy.count_together(older, member) then
    warn(member, "name", "the strategy on line " .. older.line .. " differs in its limit alone, so "
      .. "both count together, and each refuses by the sum",
      "give each strategy a name of its own")
  elseif older then
    warn(member, "name", "the strategy on line " .. older.line .. " has this name too",
      "give each strategy a name of its own: loam stats shows names")
  end
  first[member.name] = older or member
  if not member.is_reached then
    warn(member, "unused", "pick returns it for no request", "remove it, or let pick return it")
  end
  if member.is_followed then
    warn(member, "unused", "it denies the request, so no strategy behind it in a chain serves",
      "leave out what follows: it is reached by no request")
  end
  if member.kind == "deny" and (member.values.limit or member.values.soft) then
    warn(member, "limit", "it denies every request, so its limit bounds nothing",
      "give the limit to a strategy that serves: a request above it fails")
  end
  for _, option in ipairs { "limit", "soft" } do
    local reason, suggestion = limit_mistake(option, member.values[option])
    if reason then warn(member, "limit", reason, suggestion) end
  end
end

-- Returns the reports of all strategies, and warnings about them and about the policy `made`.
-- Called when all tags have been compiled, without faults where `is_compiled`.
local function declared(made, is_compiled)
  local reports, warnings, first = json.array {}, {}, {}
  local function warn(member, class, reason, suggestion)
    warnings[#warnings + 1] = diag.new { line = member.line, class = class,
      reason = "strategy '" .. member.name .. "': " .. reason, suggestion = suggestion }
  end
  if request.has_pressure() and not core.counts_stalls() then
    warnings[1] = diag.new { line = made.line, class = "machine",
      reason = "this kernel does not count stalls, so loam.pressure() is 0 here",
      suggestion = "start the kernel with psi=1 on its command line" }
  end
  for _, doubt in ipairs(site.doubts()) do warnings[#warnings + 1] = diag.new(doubt) end
  for _, line in ipairs(is_compiled and unreached.lines(made) or {}) do
    warnings[#warnings + 1] = diag.new { line = line, class = "unused",
      reason = "pick returns here for no request: the conditions above leave none",
      suggestion = "ask the narrower question first, or remove the line" }
  end
  for i, member in ipairs(strategy.declared()) do
    reports[i] = strategy.report(member)
    local reason = warning_of(member)
    if reason then warn(member, "machine", reason) end
    each_mistake(member, first, warn)
  end
  return reports, answer.objects(warnings)
end

-- Returns the row of a class: a site of it, with the fields that are not "", and its leaves.
local function row_of(where, leaf_count)
  local row = { tag = where.tag, leaves = leaf_count }
  for _, field in ipairs { "file", "func", "module" } do
    if where[field] and where[field] ~= "" then row[field] = where[field] end
  end
  return row
end

function check.run(made, asked)
  local errors, tags = policy.vet(), json.array {}
  local function add(where, class)
    if class.made then tags[#tags + 1] = row_of(where, leaves.count(class.made.tree)) end
  end
  for _, class in ipairs(policy.classes()) do add(class.where, class) end
  for _, tag in ipairs(asked.tags) do
    local where = query.where(asked, tag)
    local class = policy.class(where)
    if class.where.tag ~= tag then add(where, class) end
  end
  local strategies, warnings = declared(made, #errors == 0)
  answer.write {
    verb = "check", policy = answer.file_name(), ok = #errors == 0, name = made.name, tags = tags,
    strategies = strategies, tests = #made.tests, always = #made.invariants,
    errors = answer.objects(errors), warnings = warnings, hash = core.hash(),
  }
  return true
end

return check
