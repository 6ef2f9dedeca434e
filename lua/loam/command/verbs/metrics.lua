-- metrics.lua - serves the figures of all programs that run under loam to Prometheus.

local arguments = require("loam.command.arguments")
local http = require("loam.command.metrics.http")
local pages = require("loam.command.metrics.pages")
local terminal = require("loam.command.terminal")
local textfile = require("loam.command.metrics.textfile")

local metrics = {
  summary = "serves the figures of running programs to Prometheus",
  usage = "[--listen ADDR:PORT | --listen unix:PATH |\n"
    .. "                     --textfile DIR [--every T]] [--tags N]",
  about = [[
With --listen, serves the page http://ADDR:PORT/metrics until Ctrl-C, in the
format that the client asks for: OpenMetrics, or Prometheus's text format
0.0.4. With --textfile, writes the page to DIR/loam.prom for node_exporter
every T until Ctrl-C, and then removes it. With neither, prints the page once,
in the text format.

The page has the programs that `loam ps` lists: for root, the programs of all
users. The command reads their memory from outside. The programs do nothing for
that, and open no port. If a program may not be read, or has another version of
loam, the page has the figures of its board: its policy, its limits, and about
how much memory each strategy has. A program is read at most once a second, and
for at most 1 % of the time of a CPU; loam_figures_age_seconds tells how old
its figures are.

--listen unix:PATH makes a socket file, which only processes that may write to
the file can use. Without ADDR, as in --listen :9464, every IPv4 address of the
machine is served, so other machines can read the page. --listen needs the
library libmicrohttpd, Debian package libmicrohttpd12. Alert rules and a
dashboard are in share/loam/examples/fleet.]],
  options = {
    { "listen", "ADDR:PORT", "serves HTTP there, or at unix:PATH; port 0: a free one" },
    { "textfile", "DIR", "writes DIR/loam.prom for node_exporter", kind = "path" },
    { "every", "T", "how often the file is written; 15s by default",
      kind = "time" },
    { "tags", "N", "tags of a program with series of their own; 200 by default",
      kind = "number", most = 100000 },
  },
  example = [[
  $ loam metrics --listen 127.0.0.1:9464
  loam metrics: serving http://127.0.0.1:9464/metrics
]],
}

local TAGS = 200
local EVERY_MS, EVERY_LEAST_MS = 15000, 100
local GC_PAUSE = 150 -- percent

-- ---- arguments

local function check(given)
  if given.listen and given.textfile then
    arguments.misused("--listen and --textfile cannot be used together")
  end
  if given.every and not given.textfile then
    arguments.misused("--every needs --textfile DIR")
  end
  if given.every and given.every < EVERY_LEAST_MS then
    arguments.misused(("--every: the shortest time is %d ms"):format(EVERY_LEAST_MS))
  end
end

-- Reads "127.0.0.1:9464", "[::1]:9464", "localhost:9464" or ":9464", which is every IPv4
-- address of the machine.
---@return string host
---@return string port
local function read_address(text)
  local host, port = text:match("^%[([^%]]+)%]:(%d+)$")
  if not host then host, port = text:match("^([^:%[%]/]*):(%d+)$") end
  if not host or #port > 5 or tonumber(port) > 65535 then
    arguments.misused(("--listen: '%s' is not an address; write 127.0.0.1:9464, [::1]:9464, :9464 "
      .. "or unix:PATH"):format(arguments.plain(text)))
  end
  return host, port
end

-- ---- serving

local function announce(context, where)
  context.warn("loam metrics: serving " .. where .. "\n")
end

local function serve_unix(context, library, path, source)
  if path == "" then arguments.misused("--listen: the path after unix: is empty") end
  local descriptor, words = context.posix.listen_unix(path)
  if not descriptor then context.fail(words) end
  announce(context, "/metrics on the socket " .. arguments.plain(path))
  http.serve(context, library, descriptor, source)
  os.remove(path)
end

local function serve_tcp(context, library, host, port, source)
  local descriptor, found = context.posix.listen(host, port)
  if not descriptor then context.fail(found) end
  local shown = host:find(":", 1, true) and "[" .. host .. "]" or host
  if host == "" then
    context.warn("loam metrics: every IPv4 address of this machine is served\n")
  end
  announce(context, ("http://%s:%d/metrics"):format(host == "" and "0.0.0.0" or shown, found))
  http.serve(context, library, descriptor, source)
end

local function serve(context, given, source)
  local path = given.listen:match("^unix:(.*)$")
  local host, port
  if not path then host, port = read_address(given.listen) end
  local library, words = http.open()
  if not library then context.fail(words) end
  if path then return serve_unix(context, library, path, source) end
  return serve_tcp(context, library, host, port, source)
end

-- By default the heap of the command grows to four times the memory in use, because most commands
-- end soon. A server stays, so its heap is collected earlier.
local function collect_more_often()
  collectgarbage("setpause", GC_PAUSE)
end

function metrics.run(context, given)
  check(given)
  if given.listen or given.textfile then collect_more_often() end
  local source = pages.new(context, given.tags or TAGS)
  if given.listen then
    serve(context, given, source)
  elseif given.textfile then
    textfile.run(context, given.textfile, given.every or EVERY_MS, source)
  else
    local page = pages.get(source, "text")
    -- Both formats let labels have control characters.
    context.write(context.posix.is_terminal(1) and terminal.plain_lines(page) or page)
  end
  return 0
end

return metrics
