-- programs.lua - reads the programs that `loam diff --pid` counts: their figures, and the policy
-- that they obey.

local arguments = require("loam.command.arguments")
local boards = require("loam.command.boards")
local describe = require("loam.command.describe")
local hosts = require("loam.command.hosts")
local json = require("loam.report.json")
local terminal = require("loam.command.terminal")
local units = require("loam.command.units")

local programs = {}

-- Lists the process ids of --pid, each once.
---@return integer[]|nil nil: all programs
local function pids_of(given)
  local texts = {}
  for _, text in ipairs(given.pid) do
    if text ~= "all" then texts[#texts + 1] = text end
  end
  local has_all, pids = #texts < #given.pid, hosts.pids(texts)
  if has_all and #pids > 0 then
    arguments.misused("--pid all and process ids do not go together")
  end
  return not has_all and pids or nil
end

-- Lists the programs of --pid: { pid, status }. A program that is on no board has no status.
---@return table[]
function programs.list(context, given)
  local pids, list = pids_of(given), {}
  if not pids then
    local rows, others = boards.living(context)
    boards.warn_of_others(context, others, "diff", "and are not counted")
    for _, row in ipairs(rows) do
      list[#list + 1] = { pid = row.status.pid, status = row.status }
    end
    if #list == 0 then context.fail(boards.none_words(others, context)) end
    return list
  end
  for i, pid in ipairs(pids) do
    local row = boards.find(context, pid)
    list[i] = { pid = pid, status = row and row.status }
  end
  return list
end

-- ---- figures

-- Returns the answer of a program to `stats`, read from outside, or else over its socket. Returns
-- nil and the reason if the program cannot be read.
local function read(context, program)
  local ended = program.status and program.status.state == "ended"
  if ended then return nil, ("process %d has ended"):format(program.pid) end
  local text, words = context.api.look(program.pid)
  if text then return json.decode(text) end
  local answer = hosts.ask(context, program.pid, "stats")
  if answer and answer.rows then return answer end
  return nil, words
end

-- Reads the figures of programs. If none can be read, ends the command. A program that was named
-- must be readable; one of `all` may have ended.
---@return table[] answers, table[] unread each { pid, reason }
function programs.figures(context, list, is_named)
  local answers, unread = {}, {}
  for _, program in ipairs(list) do
    local answer, words = read(context, program)
    if not answer and is_named then context.fail(words) end
    if answer then
      program.answer = answer
      answers[#answers + 1] = answer
    else
      unread[#unread + 1] = { pid = program.pid, reason = words }
    end
  end
  if #answers == 0 then context.fail(unread[1].reason) end
  return answers, unread
end

-- ---- the policy that they obey

-- Returns the status of a program: from its board, or else from the program.
local function status_of(context, program)
  if program.status then return program.status end
  local answer, words = hosts.ask(context, program.pid, "status")
  return answer or context.fail(words)
end

-- Returns the policy that programs obey: a path, or { name, text } of the policy in an image on a
-- board. Ends the command if they obey different policies, or if neither a board nor a file has the
-- text of theirs.
---@return string|table
function programs.obeyed(context, list)
  local first
  for _, program in ipairs(list) do
    local status = status_of(context, program)
    if status.generation == 0 then
      context.fail(("%s obeys no policy: name OLD"):format(describe.program(status)))
    end
    if first and first.hash ~= status.hash then
      context.fail(("%s and %s obey different policies: name OLD"):format(
        describe.program(first), describe.program(status)))
    end
    first = first or status
  end
  local text = boards.policy_text(context, first, first.hash)
  if text then return { name = first.path ~= "" and first.path or first.name, text = text } end
  if first.path ~= "" and context.api.hash(first.path) == first.hash then return first.path end
  local source = first.path ~= "" and terminal.plain(first.path) or "a policy without a file"
  return context.fail(("%s obeys a text of %s that neither a board nor the file has: name OLD")
    :format(describe.program(first), source))
end

-- Returns the programs as the subject of a sentence: "python3 (42) has", or "3 programs have".
function programs.words(list)
  if #list > 1 then return units.plural(#list, "program") .. " have" end
  local status = list[1].status
  return (status and describe.program(status) or ("process %d"):format(list[1].pid)) .. " has"
end

return programs
