-- canned_context.lua - runs the command in a context of canned answers, for specs of its verbs.

local command = require("loam.command")
local json = require("loam.report.json")
local terminal = require("loam.command.terminal")

-- Makes a context that keeps all output, and takes its answers from `answers`: by verb, by process
-- id, or "machine". `inspect`, if it is given, answers questions about policies.
local function new_context(answers, inspect)
  local context = { out = "", err = "", queries = {}, env = {}, set = {}, clock = 0,
                    exists = {}, files = answers and answers.files or {} }
  local plain = terminal.painter(false)
  context.write = function(text) context.out = context.out .. text end
  context.warn = function(text) context.err = context.err .. text end
  context.paint, context.paint_error = plain, plain
  context.fail = function(words, text) error({ words = words, answer = text }, 0) end
  context.now = function() return 1000 end
  context.getenv = function(name) return context.env[name] end
  context.finish = function() end
  context.posix = {
    ENOENT = 2,
    absolute = function(path) return path:sub(1, 1) == "/" and path or "/cwd/" .. path end,
    readlink = function() return "/opt/bin/loam" end,
    is_readable = function(path) return path == "/opt/bin/../lib/loam/libloam-preload.so" end,
    process = function() return 4242 end,
    is_terminal = function() return context.terminal end,
    wait = function(ms)
      context.clock = context.clock + ms
      local signal = table.remove(context.waits or {}, 1) -- true: Ctrl-C
      context.ending = context.ending or signal == true and 2 or signal or nil
      return signal and true or false
    end,
    signal_status = function() return 128 + context.ending end,
    clock = function() return context.clock end,
    cpu = function() return context.cpu or 0 end,
    screen = context.screen,
    exists = function(path) return context.exists[path] or false end,
    is_stream = function(path) return context.streams ~= nil and context.streams[path] or false end,
    read = function(path)
      local text = context.files[path]
      return text, not text and path .. ": No such file or directory" or nil
    end,
    write = function(path, text)
      if path:sub(1, 1) == "/" then return nil, path .. ": No space left on device" end
      context.files[path], context.exists[path] = text, true
      return true
    end,
    try_write = function(path)
      if path:sub(1, 1) == "/" then return nil, path .. ": No space left on device" end
      return true
    end,
    program = function() return "python3" end,
    command_line = function(pid)
      return answers and answers.command_lines and answers.command_lines[pid]
    end,
    setenv = function(name, value) context.set[name] = value or false end,
    why_not_governed = function(program)
      local why = { static = "linked statically", small = "a program of 32 bits" }
      return why[program]
    end,
    exec = function(words)
      context.executed = words
      return 2, "No such file or directory"
    end,
  }
  local function answer(kind, request)
    table.insert(context.queries, request)
    local value = answers and answers[kind]
    if type(value) == "table" and value.one_by_one then
      value = table.remove(value.one_by_one, 1)
    end
    if value == nil then return nil, kind .. " has no answer", context.api.EIO end
    return type(value) == "string" and value or json.encode(value)
  end
  context.api = {
    EIO = -4,
    EPOLICY = -3,
    version = function() return "1.2.3" end,
    inspect = function(path, query)
      context.inspected = path
      if inspect then return inspect(path, query) end
      return answer(query:match("^verb (%a+)"), query)
    end,
    inspect_text = function(name, text, query)
      context.inspected = name
      return inspect(text, query)
    end,
    one_node = function(text)
      if text == "+0" then return 1 end
      return nil, "nodes are written as 0-3, 0,2, !1, +0 or all"
    end,
    board_text = function(board, hash)
      local found = answers and answers.texts and answers.texts[hash]
      if found and answers.board == board then return found end
      return nil, board .. ": it is no board that can be read"
    end,
    vet = function()
      if not answers then return nil end
      if type(answers.vetted) == "function" then return answers.vetted() end
      return answers.vetted, answers.why, answers.needs_watcher
    end,
    has_limit = function() return answers ~= nil and answers.has_limit == true end,
    compile = function(path, file)
      context.compiled = { path, file }
      return unpack(answers and answers.compiled or { nil, path .. ": gone", context.api.EIO })
    end,
    ask = function(pid, request) return answer(pid, request) end,
    look = function(pid)
      local seen = answers and answers.seen and answers.seen[pid]
      if seen then return json.encode(seen) end
      return nil, ("process %d cannot be read"):format(pid), context.api.EIO
    end,
    pages = function(pid)
      local seen = answers and answers.pages and answers.pages[pid]
      if seen then return json.encode(seen) end
      return nil, ("process %d cannot be read"):format(pid), context.api.EIO
    end,
    figures = function(pid, root, has_got)
      local seen = answers and answers.figures and answers.figures[pid]
      if type(seen) == "function" then seen = seen(root, has_got) end
      if type(seen) == "table" then return json.encode(seen), 4096 end
      return nil, seen or ("process %d cannot be read"):format(pid), context.api.EIO
    end,
    owner = function(pid, addresses)
      context.looked_up = addresses
      local found = answers and answers.owners and answers.owners[pid]
      if found then return json.encode(found) end
      return nil, ("process %d cannot be read"):format(pid), context.api.EIO
    end,
    environment = function(pid)
      return answers and answers.environments and answers.environments[pid]
    end,
    look_samples = function(_, is_whole)
      table.insert(context.queries, is_whole and "samples" or "interval")
      local samples = answers and answers.samples
      if not samples then return nil, "process 42 cannot be read", context.api.EIO end
      return json.encode(samples, { "began" })
    end,
    wish_samples = function(board, pid, since_ms, interval)
      assert(since_ms, "the row says since when")
      table.insert(context.queries, ("wish %s %d %d"):format(board, pid, interval))
      if answers.obeys ~= false then answers.samples.interval = interval end
      return true
    end,
    hosts = function() return answers and answers.hosts or {} end,
    hash = function(path)
      local found = answers and answers.hashes and answers.hashes[path]
      if found then return found end
      return nil, path .. ": No such file or directory"
    end,
    hash_text = function(text) return answers.text_hashes[text] end,
    boards = function()
      local texts, rows = {}, answers and answers.boards or {}
      context.clock = context.clock + (answers and answers.look_ms or 0)
      if rows.one_by_one then
        rows = #rows.one_by_one > 1 and table.remove(rows.one_by_one, 1) or rows.one_by_one[1]
      end
      for i, row in ipairs(rows) do
        texts[i] = type(row) == "string" and row or json.encode(row)
      end
      return texts
    end,
    publish = function() return answers.publishes end,
    shortcomings = function() return {} end,
    watch = function(...)
      context.watched = { ... }
      return true
    end,
    make_board = function()
      if answers and answers.no_board then return nil, answers.no_board end
      return answers and answers.board or "/run/7.board"
    end,
    machine = function() return answer("machine", "machine") end,
  }
  return context
end

-- Runs the command with the words of `args`. Returns its exit status and the context.
-- `prepare`, if it is given, changes the context before the command runs.
local function run(args, answers, env, inspect, prepare)
  local context = new_context(answers, inspect)
  if prepare then prepare(context) end
  context.env = env or context.env
  local list = {}
  for word in args:gmatch("%S+") do list[#list + 1] = word end
  local status = command.main(list, context)
  return status, context
end

return { new = new_context, run = run }
