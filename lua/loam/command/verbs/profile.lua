-- profile.lua - writes the memory of a program, by tag and strategy, as a file for tools that show
-- profiles, or as a picture.

local arguments = require("loam.command.arguments")
local data = require("loam.command.profile.profile")
local describe = require("loam.command.describe")
local diag = require("loam.report.diag")
local difference = require("loam.command.profile.difference")
local figures = require("loam.command.figures")
local formats = require("loam.command.profile.formats")
local hosts = require("loam.command.hosts")
local json = require("loam.report.json")
local occasion = require("loam.command.profile.occasion")
local pprof_read = require("loam.command.profile.pprof_read")
local sampling = require("loam.command.profile.sampling")
local stacks = require("loam.command.profile.stacks")
local symbols = require("loam.command.profile.symbols")
local tags = require("loam.command.profile.tags")
local terminal = require("loam.command.terminal")
local units = require("loam.command.units")

local profile = {
  summary = "writes a program's memory by tag as a profile or a flame graph",
  usage = "[PID] [--stacks [SIZE|off]] [--for T] [--keep] [--on WHEN]\n"
    .. "                    [--format FORMAT] [--sample TYPE] [--base FILE] [-o FILE]",
  takes = { name = "PID", most = 1 },
  about = [[
Without --stacks the profile is exact: nothing is sampled, and its sums are the
figures of loam stats. A stack has a frame for each prefix of a tag, so
tensor.weights has the frames tensor and tensor.weights; below them is the
strategy. FORMAT is one of these:
  pprof       for go tool pprof, Pyroscope, Parca and speedscope (the default)
  speedscope  JSON for www.speedscope.app
  collapsed   a line for each stack, for flamegraph.pl and inferno
  svg         a picture of a flame graph, for any browser
  text        for reading: the largest stacks first, with files and lines;
              without -o it goes to standard output
TYPE is inuse_space or inuse_objects, the bytes or the blocks in use, or
alloc_space or alloc_objects, the bytes or the blocks that were ever allocated.
A file in the format collapsed, svg or text has one type; in another format it
has all, and TYPE is shown first.

--base subtracts an earlier profile in the format of pprof. Memory that became
less is negative in pprof; speedscope shows it in a profile of its own, and svg
in another colour; a collapsed stack has two values, before and now; text says
how much more or less.

--stacks shows the functions that ask for memory, by samples: one block in SIZE
bytes on average, with its stack. SIZE has a unit: a bare number is taken for
PID. Each figure is then an estimate; large figures are estimated best. If the
program samples already, its samples are read. Else the command switches
sampling on, waits as long as --for says, reads the samples, and switches
sampling off again, unless --keep is given; blocks that were allocated before
are not in the profile. LOAM_PROFILE=512KiB in the environment of a program
switches sampling on from the start. --stacks off switches it off. Sampling
costs nothing while it is off, and little while it is on. The command looks up
functions by elfutils' libdw; without it the file has addresses, which pprof
looks up itself.

--on waits, and takes the profile when the program has an occasion for it:
  near-limit=90%  a limit is 90 % used, or more; near-limit alone means 90 % too
  failed          a request got no memory, or was denied
  signal          a signal has ended the program: the profile shows the last
                  look before
Several may stand with commas between them. The program does nothing for it and
needs no memory. The command looks ten times a second, or less often at a large
program. If the program ends otherwise, there is no profile, and the exit
status is 1.

The command reads the program as loam stats does. For a program that was
killed, the profile has the strategies that the program noted last, and no
tags. Without PID, the command reads the only program of yours that runs under
loam. Without -o, it writes a new file in the working directory and prints its
name, except for text.]],
  options = {
    { "stacks", "[SIZE|off]", "by stacks: mean bytes between samples (default 512KiB)",
      kind = "stacks", pattern = "^[%d.]*%a+$", default = "" },
    { "for", "T", "how long to sample, if nothing samples yet (default 10s)",
      kind = "time" },
    { "keep", nil, "the program goes on sampling" },
    { "on", "WHEN", "wait for near-limit=90%, failed or signal" },
    { "format", "FORMAT", "pprof, speedscope, collapsed, svg or text (default pprof)" },
    { "sample", "TYPE", "what to show (default inuse_space)" },
    { "base", "FILE", "an earlier pprof profile to subtract", kind = "path" },
    { "output", "FILE", "the file to write; also -o FILE; - is standard output", kind = "path",
      short = "o" },
  },
  example = [[
  $ loam profile 4242
  loam-4242.001.pb.gz: inuse_space 1.8 GiB in 42 stacks
  $ go tool pprof -http=: loam-4242.001.pb.gz
  $ loam profile 4242 --format svg --base loam-4242.001.pb.gz
  loam-4242.001.svg: inuse_space 2 GiB, 213 MiB more than in loam-4242.001.pb.gz
  $ loam profile 4242 --stacks --for 60s --format text
  python3 (4242): about 212 MiB live, sampled for 60 s

  inuse_space 148 MiB, 69.8%
      remember  /srv/app/cache.py:41
      handle  /srv/app/main.py:12
]],
}

local LARGEST = 2 ^ 28 -- bytes that a base may have in its file

-- Returns the value of an option, which must be one of `known`.
local function choice(name, value, known)
  for _, word in ipairs(known) do
    if word == value then return value end
  end
  local nearest = diag.suggest(value, known)
  return arguments.misused(("--%s: '%s' is not possible; %s"):format(name,
    arguments.plain(value), nearest and "did you mean '" .. nearest .. "'?"
      or "write one of " .. table.concat(known, ", ")))
end

local FORMATS = { "pprof", "speedscope", "collapsed", "svg", "text" }
local TYPES = {}
for i, kind in ipairs(data.MEMORY) do TYPES[i] = kind.type end

-- Reads the profile that --base names. Fails if it shows tags and the new one shows stacks, or the
-- other way round: their samples have nothing in common. Only samples have a period.
local function read_base(context, path, has_stacks)
  local text, words = context.posix.read(path, LARGEST)
  if not text then return context.fail(words) end
  local base
  base, words = pprof_read.read(text)
  if not base then return context.fail(("%s: no pprof profile: %s"):format(path, words)) end
  tags.mark(base)
  if has_stacks and tags.is_of(base) then
    return context.fail(path .. ": it is a profile by tags; leave --stacks out to compare with it")
  elseif not has_stacks and base.period_type then
    return context.fail(path .. ": it is a profile by stacks; add --stacks to compare with it")
  end
  return base
end

local function subject_of(context, pid, program)
  return { pid = pid, program = program or context.posix.program(pid) or "process",
           version = context.api.version(), now = context.now() }
end

-- Makes the profile of the samples of a process.
---@param program string|nil its name, if the process may have ended
---@param maps string|nil the text of its mappings, if the process has ended
local function of_samples(context, pid, answer, program, maps)
  local found, words = symbols.open(pid, maps)
  if not found then context.warn(("loam profile: %s: the file has addresses\n"):format(words)) end
  for _, loss in ipairs(stacks.losses(answer)) do context.warn("loam profile: " .. loss .. "\n") end
  local made = stacks.live(answer, subject_of(context, pid, program), found)
  if found then found.close() end
  return made
end

-- Returns the interval that --stacks names, or nil.
local function interval_of(given)
  return given.stacks ~= "" and given.stacks or nil
end

-- Makes the profile of a process by stacks. Returns nil if the user interrupts the wait.
local function take_stacks(context, pid, given)
  local answer = sampling.take(context, pid, interval_of(given), given["for"], given.keep)
  return answer and of_samples(context, pid, answer)
end

-- Makes the profile of a process. Warns if the figures are not exact or are last figures.
local function take(context, pid)
  local text, is_last, words = figures.find(context, pid)
  local answer = json.decode(text)
  local program = is_last and answer.program or nil
  local subject = subject_of(context, pid, program)
  if not is_last then
    if answer.inexact then
      context.warn("loam profile: the program changed while it was read: the figures are not "
        .. "exact\n")
    end
    return tags.live(answer, subject)
  end
  local made = tags.last(answer, subject)
  if not made then
    return context.fail(words or describe.program(subject) .. " noted no figures of its memory")
  end
  if words then context.warn(("loam profile: %s\n"):format(words)) end
  context.warn(("loam profile: %s\n"):format(made.title))
  return made
end

-- Makes the profile of the last look at a process that a signal has ended.
local function take_last(context, pid, last, given, program, before)
  context.warn(("loam profile: the figures are from %.0f ms before its end was noticed\n"):format(
    last.ago))
  if given.stacks and last.samples then
    local answer = sampling.of_session(json.decode(last.samples), before)
    return of_samples(context, pid, answer, program, last.maps or "")
  end
  return tags.live(last.answer, subject_of(context, pid, program))
end

-- Waits for an occasion and makes the profile. Returns nil if the user interrupts the wait.
---@param before number|nil with --stacks, what sampling.switch_on has returned
local function take_at_occasion(context, pid, given, before)
  local program = context.posix.program(pid) -- later the process may have ended
  context.warn(("loam profile: waiting for process %d\n"):format(pid))
  local reason, last = occasion.wait(context, pid, occasion.parse(given.on), given.stacks ~= nil)
  if not reason then return nil end
  context.warn(("loam profile: %s\n"):format(reason))
  if last then return take_last(context, pid, last, given, program, before), true end
  if given.stacks then return of_samples(context, pid, sampling.read(context, pid, before)) end
  return take(context, pid)
end

-- Like take_at_occasion; with --stacks, the program samples until then.
local function take_on(context, pid, given)
  if not given.stacks then return take_at_occasion(context, pid, given) end
  local before = sampling.switch_on(context, pid, interval_of(given))
  if not before then return nil end
  local ok, made, has_ended = pcall(take_at_occasion, context, pid, given, before)
  if not has_ended and not given.keep then pcall(sampling.restore, context, pid, before) end
  return ok and made or not ok and error(made, 0) or nil
end

-- Makes the profile that the options ask for. Returns nil if the user interrupts a wait.
local function make(context, pid, given)
  if given.on then return take_on(context, pid, given) end
  if given.stacks then return take_stacks(context, pid, given) end
  return take(context, pid)
end

local function subtract(context, made, base, path)
  local changed = difference.of(made, base)
  if changed then
    changed.comments = { unpack(made.comments) }
    table.insert(changed.comments, "less the figures of " .. path)
    return changed
  end
  return context.fail(("%s: it has %s, and none of %s"):format(path,
    terminal.plain(data.type_names(base)), data.type_names(made)))
end

-- Sets the type that is shown first.
local function set_type(context, made, name)
  made.default = data.type_index(made, name or "inuse_space")
  if not made.default and name then
    context.fail(("there is no %s: the figures have %s alone"):format(name,
      data.type_names(made)))
  end
  made.default = made.default or #made.types
end

-- Returns the sum of the profile and its number of stacks, or its change, in a few words.
local function summary(made, base)
  local index = made.default
  local kind, value = made.types[index], data.total(made, index)
  local text = kind.unit == "bytes" and units.bytes or units.count
  if base then
    local now = value
    for _, sample in ipairs(made.samples) do now = now + sample.before[index] end
    local change = value == 0 and "as much as" or ("%s %s than"):format(text(math.abs(value)),
      value > 0 and "more" or "less")
    return ("%s %s, %s in %s"):format(kind.type, text(now), change, terminal.plain(base))
  end
  return ("%s %s in %s"):format(kind.type, text(value),
    units.plural(data.count_stacks(made, index), "stack"))
end

-- Returns a name that no file has yet.
local function new_name(context, pid, ending)
  for number = 1, math.huge do
    local name = ("loam-%d.%03d.%s"):format(pid, number, ending)
    if not context.posix.exists(name) then return name end
  end
end

-- Returns whether the profile goes to standard output.
local function is_printed(given, format)
  return given.output == "-" or (format.is_for_reading and not given.output)
end

-- Fails before a wait if the file cannot be written: the wait may be long, and the occasion may
-- come only once.
local function try_output(context, pid, given, format)
  if is_printed(given, format) then return end
  local ok, words = context.posix.try_write(given.output or new_name(context, pid, format.ending()))
  if not ok then context.fail(words) end
end

-- Ends the samples of a program.
local function stop(context, pid)
  local how = sampling.restore(context, pid, 0)
  context.write(how == "obeyed" and ("process %d samples nothing\n"):format(pid)
    or ("process %d ends its samples with its next request for memory\n"):format(pid))
  return how == "interrupted" and context.posix.signal_status() or 0
end

local function check_stacks(given)
  for _, name in ipairs { "for", "keep", "on", "format", "sample", "base", "output" } do
    if given.stacks == sampling.OFF and given[name] then
      arguments.misused(("--%s: `--stacks off` writes no profile"):format(name))
    end
  end
  if given.on then occasion.parse(given.on) end
  if given.on and given["for"] then arguments.misused("--for: --on says when the wait ends") end
  if given.stacks then return end
  for _, name in ipairs { "for", "keep" } do
    if given[name] then arguments.misused(("--%s needs --stacks"):format(name)) end
  end
end

-- Says why a profile by stacks has nothing to show.
local function explain_emptiness(context, made)
  if data.total(made, made.default) ~= 0 then return end
  context.warn(#made.samples > 0
    and "loam profile: no block that was sampled is in use now; try --sample alloc_space\n"
    or "loam profile: no block was sampled: the program requested little memory in that time; try "
      .. "a smaller SIZE, or a longer --for\n")
end

function profile.run(context, given)
  check_stacks(given)
  local format = formats[choice("format", given.format or "pprof", FORMATS)]
  local kind = given.sample and choice("sample", given.sample, TYPES)
  if given.output == "-" and format.is_binary and context.posix.is_terminal(1) then
    arguments.misused("-o -: standard output is a terminal, and the format is not text")
  end
  local pid = hosts.living(context, given[1], "profile")
  if given.stacks == sampling.OFF then return stop(context, pid) end
  if given.on or given.stacks then try_output(context, pid, given, format) end
  local base = given.base and read_base(context, given.base, given.stacks ~= nil)
  local made = make(context, pid, given)
  if not made then return context.posix.signal_status() end
  if base then made = subtract(context, made, base, given.base) end
  set_type(context, made, kind)
  if given.stacks and not base then explain_emptiness(context, made) end
  local text = format.write(made, "loam " .. context.api.version())
  if is_printed(given, format) then
    context.write(text)
    return 0
  end
  local file = given.output or new_name(context, pid, format.ending())
  local ok, words = context.posix.write(file, text)
  if not ok then context.fail(words) end
  context.write(("%s: %s\n"):format(terminal.plain(file), summary(made, given.base)))
  return 0
end

return profile
