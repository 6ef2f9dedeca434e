-- cli_world - the command line in a world of canned answers, for specs of its verbs.

local cli = require("loam.cli")
local json = require("loam.json")
local terminal = require("loam.cli.terminal")

-- A world that remembers what was written, and answers from `answers`.
local function new_world(answers)
  local world = { out = "", err = "", queries = {}, env = {}, set = {} }
  local plain = terminal.painter(false)
  world.write = function(text) world.out = world.out .. text end
  world.warn = function(text) world.err = world.err .. text end
  world.paint, world.paint_error = plain, plain
  world.fail = function(words) error({ words = words }, 0) end
  world.now = function() return 1000 end
  world.getenv = function(name) return world.env[name] end
  world.finish = function() end
  world.posix = {
    ENOENT = 2,
    absolute = function(path) return path:sub(1, 1) == "/" and path or "/cwd/" .. path end,
    readlink = function() return "/opt/bin/loam" end,
    is_readable = function(path) return path == "/opt/bin/../lib/loam/libloam-preload.so" end,
    process = function() return 4242 end,
    is_terminal = function() return world.terminal end,
    wait = function() return table.remove(world.waits or {}, 1) or false end,
    setenv = function(name, value) world.set[name] = value or false end,
    exec = function(command)
      world.executed = command
      return 2, "No such file or directory"
    end,
  }
  local function answer(kind, request)
    table.insert(world.queries, request)
    local value = answers and answers[kind]
    if type(value) == "table" and value.one_by_one then
      value = table.remove(value.one_by_one, 1)
    end
    if value == nil then return nil, kind .. " has no answer", world.api.EIO end
    return type(value) == "string" and value or json.encode(value)
  end
  world.api = {
    EIO = -4,
    version = function() return "1.2.3" end,
    inspect = function(path, query)
      world.inspected = path
      return answer(query:match("^verb (%a+)"), query)
    end,
    vet = function() return answers and answers.vetted end,
    ask = function(pid, request) return answer(pid, request) end,
    hosts = function() return answers and answers.hosts or {} end,
    machine = function() return answer("machine", "machine") end,
  }
  return world
end

-- Its exit status, and the world that it leaves.
local function run(args, answers, env)
  local world = new_world(answers)
  world.env = env or world.env
  local list = {}
  for word in args:gmatch("%S+") do list[#list + 1] = word end
  local status = cli.main(list, world)
  return status, world
end

return { new = new_world, run = run }
