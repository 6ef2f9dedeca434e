-- explain - which memory one request gets, and the lines of the policy that decided.

local describe = require("loam.cli.describe")
local options = require("loam.cli.options")
local question = require("loam.cli.question")
local terminal = require("loam.cli.terminal")
local units = require("loam.cli.units")

local explain = {
  summary = "tells which memory a request gets, and which lines decided",
  usage = "POLICY --tag T --size N [--align A] [--zero] [--node N] [--live N] [--device N]\n"
    .. "       loam explain POLICY --batch FILE [--node N] [--live N] [--device N]",
  takes = { name = "POLICY", least = 1, most = 1 },
  about = [=[
Sizes may carry KiB, MiB, GiB. What is not given is as a plain malloc has it: alignment
16, not zeroed, node 0, nothing live. Of nodes as much is free as here and now; of devices
nothing: a policy's tests (`loam test`) say what is decided when. A batch has lines of
`tag<TAB>size[<TAB>align[<TAB>zero]]` and is answered by one JSON object a line, in the
same order.]=],
  options = {
    { "tag", "T", "what the memory is for", kind = "tag" },
    { "size", "N", "bytes asked for", kind = "size" },
    { "align", "A", "alignment asked for, a power of two", kind = "power" },
    { "zero", nil, "zeroed memory, as calloc asks for" },
    { "node", "N", "NUMA node of the calling CPU", kind = "number", most = 63 },
    { "live", "N", "bytes live under the tag", kind = "size" },
    { "device", "N", "current device, -1 for none", kind = "number", least = -1, most = 63 },
    { "file", "F", "source file of the call" },
    { "func", "F", "function of the call" },
    { "module", "M", "program or library of the call" },
    { "line", "N", "line of the call", kind = "number" },
    { "batch", "FILE", "requests, one a line", kind = "path" },
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

local function read_lines(path)
  local lines = {}
  local file = io.open(path)
  if not file then return lines end
  for line in file:lines() do lines[#lines + 1] = line end
  file:close()
  return lines
end

local function quoted(path, lines, number)
  local text = (lines[number] or ""):gsub("^%s+", ""):gsub("%s+$", "")
  return ("  %s:%d: %s\n"):format(terminal.plain(path), number, terminal.plain(text))
end

local function show_path(world, path, answer)
  local lines, last = read_lines(path), nil
  for _, step in ipairs(answer.path) do
    if step.line ~= last then
      world.write(quoted(path, lines, step.line))
      last = step.line
    end
    world.write(("      %s was %s\n"):format(terminal.plain(step.condition),
      world.paint(step.holds and "green" or "red", tostring(step.holds))))
  end
  if answer.line and answer.line ~= last then world.write(quoted(path, lines, answer.line)) end
end

local function show(world, path, answer)
  local strategy = answer.strategy
  world.write(("%s, %s: %s\n"):format(describe.tag(answer.tag), units.exact(answer.size),
    world.paint("bold", describe.chain(answer.chain or { strategy.name }))))
  world.write(("  %s is %s\n"):format(terminal.plain(strategy.name), describe.strategy(strategy)))
  world.write(#answer.path == 0 and "for every request of this tag:\n" or "because\n")
  show_path(world, path, answer)
end

local function check_given(world, given)
  if not given.batch then
    if not given.tag then options.misused("--tag T is missing (or --batch FILE)") end
    if not given.size then options.misused("--size N is missing (or --batch FILE)") end
    return
  end
  for _, name in ipairs { "tag", "size", "align", "zero" } do
    if given[name] then options.misused("--batch brings its own " .. name .. " on each line") end
  end
  local file, words = io.open(given.batch)
  if not file then world.fail(words) end
  file:close()
end

-- A batch is answered in JSON, each fault in its line's place; only the refusal of the whole policy
-- is told in words.
local function show_answer(world, given, text)
  local answer = question.read(world, text:match("^[^\n]*"))
  if given.json or given.batch and not answer.policy then
    world.write(text .. "\n")
  elseif not question.is_refused(world, answer) then
    show(world, given[1], answer)
  end
end

function explain.run(world, given)
  check_given(world, given)
  local text = question.ask(world, "explain", given[1], given)
  if text ~= "" then show_answer(world, given, text) end
  -- In JSON a quote within a text is escaped, so this is no text.
  return text:find('"ok":false', 1, true) and 1 or 0
end

return explain
