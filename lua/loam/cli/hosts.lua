-- hosts - the running programs of this user that answer: which they are, asking one.

local json = require("loam.json")
local options = require("loam.cli.options")

local hosts = {}

hosts.PATIENCE_MS = 2000

---@return integer
function hosts.pid(text)
  local pid = text:match("^%d+$") and #text < 10 and tonumber(text)
  if not pid or pid < 1 then
    options.misused(("'%s' is not the number of a process"):format(text))
  end
  return pid
end

---@return table|nil answer
---@return string|nil words where there is none
---@return string|nil text of the answer
function hosts.ask(world, pid, request, patience_ms)
  local text, words = world.api.ask(pid, request, patience_ms or hosts.PATIENCE_MS)
  if not text then return nil, words end
  local answer, message = json.decode(text)
  if not answer then return nil, ("process %d: its answer is %s"):format(pid, message) end
  return answer, nil, (text:gsub("\n+$", ""))
end

---@return integer[] ascending
function hosts.all(world)
  local pids, words = world.api.hosts()
  if not pids then world.fail(words) end
  table.sort(pids)
  return pids
end

local function list(world, pids, name)
  world.warn(("loam %s: %d programs run under loam; name one:\n"):format(name, #pids))
  for _, pid in ipairs(pids) do
    local answer = hosts.ask(world, pid, "status")
    world.warn(("  loam %s %d    # %s\n"):format(name, pid, answer and answer.program or "?"))
  end
  error({ silent = true, status = 2 }, 0)
end

-- The host that is named, else the only one.
---@param text string|nil
---@return integer
function hosts.choose(world, text, name)
  if text then return hosts.pid(text) end
  local pids = hosts.all(world)
  if #pids == 0 then world.fail("no program of yours runs under loam") end
  if #pids > 1 then list(world, pids, name) end
  return pids[1]
end

-- The answer of a host to `name`, shown by `show` or as it came.
function hosts.answer(world, given, name, show)
  local pid = hosts.choose(world, given[1], name)
  local answer, words, text = hosts.ask(world, pid, name)
  if not answer then world.fail(words) end
  if given.json then
    world.write(text .. "\n")
  else
    show(world, answer)
  end
  return 0
end

return hosts
