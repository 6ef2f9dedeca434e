-- explain.lua - the command `loam explain`: which memory one request gets, and which lines of the
-- policy decided so.

local describe = require("loam.command.describe")
local arguments = require("loam.command.arguments")
local policy_query = require("loam.command.policy_query")
local policy_stream = require("loam.command.policy_stream")
local terminal = require("loam.command.terminal")
local units = require("loam.command.units")

local explain = {
  summary = "shows which memory a request gets, and which lines decided",
  usage = "POLICY --tag T --size N [--align A] [--zero] [OPTION]...\n"
    .. "                    [--json]\n"
    .. "       loam explain POLICY --batch FILE [OPTION]...\n"
    .. "       OPTION: --node N, --live N, --device N, --file F, --func F, --module M,\n"
    .. "               --line N, --pressure P, --node-free N=SIZE, --device-free N=SIZE",
  takes = { name = "POLICY", least = 1, most = 1 },
  about = [=[
Without options, the request is a plain malloc: alignment 16, not zeroed, from a
CPU of node 0, under a tag without live bytes, and with no memory pressure. The
free memory of each node is what this machine has now, and devices have no free
memory. The options below say otherwise.

--batch FILE explains many requests. Each line of FILE is one request:
`tag<TAB>size[<TAB>align[<TAB>zero]]`. The answer to each line is one line with
a JSON object, in the order of FILE.]=],
  options = {
    { "tag", "T", "the tag of the request", kind = "tag" },
    { "size", "N", "bytes asked for", kind = "size" },
    { "align", "A", "alignment asked for, a power of two", kind = "power" },
    { "zero", nil, "zeroed memory, as calloc asks for" },
    { "node", "N", "NUMA node of the calling CPU", kind = "number", most = 63 },
    { "live", "N", "live bytes of the tag", kind = "size" },
    { "device", "N", "current device; -1: there is none", kind = "number", least = -1, most = 63 },
    { "file", "F", "source file of the call", kind = "site" },
    { "func", "F", "function of the call", kind = "site" },
    { "module", "M", "program or library of the call", kind = "site" },
    { "line", "N", "line of the call", kind = "number" },
    { "pressure", "P", "percent of time that the control group waited for memory", kind = "number",
      most = 100 },
    { "node-free", "N=SIZE", "free memory of NUMA node N, such as 0=2GiB", kind = "free",
      many = true },
    { "device-free", "N=SIZE", "free memory of device N", kind = "free", many = true },
    { "batch", "FILE", "a file of requests, one a line; - is standard input", kind = "path" },
    { "json", nil, "the answer as a JSON object" },
  },
  example = [[
  $ loam explain prod.lua --tag tensor.weights --size 8MiB
  tensor.weights, 8 MiB: tensors, else scratch
    tensors is host: align 64, huge thp, numa local
  because
    prod.lua:10: if req.tag:under("tensor") and req.size >= 4 * MiB then
        req.tag:under("tensor") was true
        req.size >= 4194304 was true
    prod.lua:11: return tensors:or_else(scratch)
]],
}

-- Returns the number of 8 bytes at an offset: the lowest byte comes first.
local function number_at(bytes, offset)
  local n = 0
  for i = 8, 1, -1 do n = n * 256 + bytes:byte(offset + i) end
  return n
end

-- Returns the text of a policy: an image (plan/policy_image.h) says at byte 32 where its text is.
local function text_of(bytes)
  if not policy_stream.is_image(bytes) or #bytes < 48 then return bytes end
  local at, size = number_at(bytes, 32), number_at(bytes, 40)
  return bytes:sub(at + 1, at + size)
end

-- Returns the lines of an opened policy; none if it cannot be read.
local function lines_of(context, policy)
  local bytes, lines = type(policy) == "table" and policy.text, {}
  bytes = bytes or context.posix.read(policy, policy_stream.MOST)
  for line in text_of(bytes or ""):gmatch("([^\n]*)\n?") do lines[#lines + 1] = line end
  return lines
end

local function quoted(path, lines, number)
  local text = terminal.trimmed((lines[number] or ""):gsub("^%s+", ""))
  return ("  %s:%d: %s\n"):format(terminal.plain(path), number, terminal.plain(text))
end

local function show_path(context, policy, answer)
  local path, lines, last = policy_stream.name(policy), lines_of(context, policy), nil
  for _, step in ipairs(answer.path) do
    if step.line ~= last then
      context.write(quoted(path, lines, step.line))
      last = step.line
    end
    context.write(("      %s was %s\n"):format(terminal.plain(step.condition),
      context.paint(step.holds and "green" or "red", tostring(step.holds))))
  end
  if answer.line and answer.line ~= last then context.write(quoted(path, lines, answer.line)) end
end

local function show(context, policy, answer)
  local strategy = answer.strategy
  context.write(("%s, %s: %s\n"):format(describe.tag(answer.tag), units.exact(answer.size),
    context.paint("bold", describe.chain(answer.chain or { strategy.name }))))
  context.write(("  %s is %s\n"):format(terminal.plain(strategy.name), describe.strategy(strategy)))
  context.write(#answer.path == 0 and "for every request of this tag:\n" or "because\n")
  show_path(context, policy, answer)
end

local function check_given(given)
  if not given.batch then
    if not given.tag then arguments.misused("--tag T is missing (or --batch FILE)") end
    if not given.size then arguments.misused("--size N is missing (or --batch FILE)") end
    return
  end
  for _, name in ipairs { "tag", "size", "align", "zero" } do
    if given[name] then
      arguments.misused("--" .. name .. " does not go with --batch: each line of FILE has its own")
    end
  end
  if given.batch == "-" and given[1] == "-" then
    arguments.misused("standard input cannot be both the policy and the requests of --batch")
  end
  if given.batch == "-" then given.batch = "/dev/stdin" end
end

-- Shows an answer. A batch is answered in JSON, also for lines that are wrong; but if the whole
-- policy is refused, its errors are shown in words.
local function show_answer(context, given, policy, text)
  local answer = policy_query.read(context, text:match("^[^\n]*"))
  if given.json or given.batch and not answer.policy then
    context.write(text .. "\n")
  elseif not policy_query.is_refused(context, answer) then
    show(context, policy, answer)
  end
end

function explain.run(context, given)
  check_given(given)
  local policy = policy_stream.open(context, given[1])
  local text = policy_query.ask(context, "explain", policy, given)
  if text ~= "" then show_answer(context, given, policy, text) end
  -- JSON escapes quotes inside strings, so this can only be a member of an answer.
  return text:find('"ok":false', 1, true) and 1 or 0
end

return explain
