-- http.lua - serves pages over HTTP by libmicrohttpd, in the main thread.
--
-- The library is opened when it is needed: only `loam metrics --listen` uses it. The socket is
-- opened before, so that a failure can be explained. The library runs no thread. It calls handle()
-- from inside MHD_run, so no two requests are answered at a time, and no lock is needed.

local accept = require("loam.command.metrics.accept")
local exposition = require("loam.command.metrics.exposition")
local pages = require("loam.command.metrics.pages")

local http = {}

local LIBRARY = "libmicrohttpd.so.12"
local PACKAGE = "libmicrohttpd12" -- of Debian

-- From microhttpd.h.
local DECLARATIONS = [[
typedef int loam_http_handler(void *ctx, void *connection, const char *url, const char *method,
  const char *version, const char *data, size_t *data_size, void **state);
typedef void loam_http_noticer(void *ctx, void *connection, void **state, int what);
void *MHD_start_daemon(unsigned flags, uint16_t port, void *accept, void *accept_ctx,
  loam_http_handler *handler, void *ctx, ...);
void MHD_stop_daemon(void *daemon);
int MHD_run(void *daemon);
int MHD_get_timeout(void *daemon, unsigned long long *ms);
const int *MHD_get_daemon_info(void *daemon, int what, ...);
const int *MHD_get_connection_info(void *connection, int what, ...);
const char *MHD_lookup_connection_value(void *connection, int kind, const char *key);
void *MHD_create_response_from_buffer(size_t size, const char *text, int mode);
int MHD_add_response_header(void *response, const char *name, const char *value);
int MHD_queue_response(void *connection, unsigned status, void *response);
void MHD_destroy_response(void *response);
int shutdown(int descriptor, int how);
]]

local USE_EPOLL = 512
local OPTION_END, OPTION_CONNECTION_LIMIT, OPTION_CONNECTION_TIMEOUT = 0, 2, 3
local OPTION_LISTEN_SOCKET, OPTION_NOTIFY_CONNECTION = 12, 27
local INFO_EPOLL_FD, INFO_CONNECTIONS = 3, 4
local INFO_CONNECTION_FD = 6
local NOTIFY_STARTED = 0
local KIND_HEADER, KIND_ARGUMENT = 1, 8
local MUST_COPY = 2
local SHUT_RDWR = 2 -- of shutdown(2)

local CONNECTIONS_MOST = 64
local TIMEOUT_S = 15   -- an idle connection is closed after that time
local WAIT_MOST_MS = 60000

-- Returns the functions of the library, or nil and the reason.
---@return table|nil
---@return string|nil
function http.open()
  local ffi = require("ffi")
  local ok, library = pcall(ffi.load, LIBRARY)
  if not ok then
    return nil, ("--listen needs %s, Debian package %s: %s"):format(LIBRARY, PACKAGE,
      tostring(library))
  end
  ffi.cdef(DECLARATIONS)
  return library
end

-- ---- answers

local PLAIN = "text/plain; charset=utf-8"

-- Returns the part of the scraper's patience that the figures may take. Prometheus tells its
-- patience in a header.
local function budget_of(timeout)
  local seconds = tonumber(timeout or "")
  if not seconds or seconds <= 0 then return pages.BUDGET_MS end
  return math.max(1, math.min(pages.BUDGET_MS, seconds * 500))
end

local function answer_page(source, request)
  local format = request.format or accept.format(request.accept)
  if not exposition.CONTENT_TYPE[format] then
    return 400, PLAIN, "format is text or openmetrics\n"
  end
  local text = pages.get(source, format, budget_of(request.timeout))
  return 200, exposition.CONTENT_TYPE[format], text
end

-- Answers one request.
---@param source loam.Pages
---@param request table method, path, and those that were given of accept, format, timeout
---@return integer status
---@return string content_type
---@return string text
function http.answer(source, request)
  if request.method ~= "GET" and request.method ~= "HEAD" then
    return 405, PLAIN, "only GET and HEAD are answered\n"
  end
  if request.path == "/metrics" then return answer_page(source, request) end
  if request.path == "/" then
    return 200, "text/html; charset=utf-8",
      '<!doctype html><title>loam</title><p><a href="/metrics">metrics</a>\n'
  end
  return 404, PLAIN, "the figures are at /metrics\n"
end

-- ---- the connections

-- Returns a list of connections. A connection gets the next number when it begins, and again when
-- it has sent a whole request. So the connection with the least number has been silent for the
-- longest time.
local function new_connections() return { by_key = {}, number = 0 } end

local function key_of(connection)
  local ffi = require("ffi")
  return tonumber(ffi.cast("intptr_t", connection))
end

local function renew(list, one)
  list.number = list.number + 1
  one.number = list.number
end

-- Makes the function that the library calls as a connection begins and as it ends.
local function noticer(library, list)
  return function(_, connection, _, what)
    local key, one = key_of(connection), nil
    if what == NOTIFY_STARTED then
      one = { descriptor = library.MHD_get_connection_info(connection, INFO_CONNECTION_FD)[0] }
      renew(list, one)
    end
    list.by_key[key] = one
  end
end

-- Closes the connection that has been silent for the longest time. The library notices that as it
-- runs the next time, and ends the connection.
local function close_silent(list)
  local ffi = require("ffi")
  local silent
  for key, one in pairs(list.by_key) do
    if not silent or one.number < list.by_key[silent].number then silent = key end
  end
  if not silent then return end
  ffi.C.shutdown(list.by_key[silent].descriptor, SHUT_RDWR)
  list.by_key[silent] = nil
end

-- ---- the library

local function read_request(ffi, library, connection, path, method)
  local function value(kind, key)
    local found = library.MHD_lookup_connection_value(connection, kind, key)
    return found ~= nil and ffi.string(found) or nil
  end
  return {
    path = ffi.string(path), method = ffi.string(method),
    accept = value(KIND_HEADER, "Accept"), format = value(KIND_ARGUMENT, "format"),
    timeout = value(KIND_HEADER, "X-Prometheus-Scrape-Timeout-Seconds"),
  }
end

local function send(library, connection, status, content_type, text)
  local response = library.MHD_create_response_from_buffer(#text, text, MUST_COPY)
  if response == nil then return 0 end
  library.MHD_add_response_header(response, "Content-Type", content_type)
  if status == 405 then library.MHD_add_response_header(response, "Allow", "GET, HEAD") end
  local sent = library.MHD_queue_response(connection, status, response)
  library.MHD_destroy_response(response)
  return sent
end

-- Makes the function that the library calls for each request. An error must not pass through the
-- library's frames, so it becomes an answer. The library calls the function first when it has the
-- header of a request: with an answer already then, it would close the connection. Then it calls
-- with each part of a body, which is ignored, and last without data.
local function handler(context, library, source, list)
  local ffi = require("ffi")
  local seen = ffi.new("char[1]")
  return function(_, connection, path, method, _, _, size, state)
    if state[0] == nil or size[0] > 0 then
      state[0], size[0] = seen, 0
      return 1
    end
    local one = list.by_key[key_of(connection)]
    if one then renew(list, one) end
    local ok, status, content_type, text = pcall(function()
      return http.answer(source, read_request(ffi, library, connection, path, method))
    end)
    if not ok then
      local words = type(status) == "table" and status.words or tostring(status)
      context.warn("loam metrics: a page could not be made: " .. words .. "\n")
      status, content_type, text = 500, PLAIN, "the page could not be made\n"
    end
    return send(library, connection, status, content_type, text)
  end
end

local function start(library, descriptor, callback, notice)
  local ffi = require("ffi")
  local function int(n) return ffi.cast("int", n) end
  local function uint(n) return ffi.cast("unsigned", n) end
  return library.MHD_start_daemon(USE_EPOLL, 0, nil, nil, callback, nil,
    int(OPTION_LISTEN_SOCKET), int(descriptor),
    int(OPTION_CONNECTION_LIMIT), uint(CONNECTIONS_MOST),
    int(OPTION_CONNECTION_TIMEOUT), uint(TIMEOUT_S),
    int(OPTION_NOTIFY_CONNECTION), notice, ffi.cast("void *", nil), int(OPTION_END))
end

-- Returns how long to wait for the clients, in ms.
local function patience(library, daemon, ms)
  if library.MHD_get_timeout(daemon, ms) == 0 then return WAIT_MOST_MS end
  return math.min(WAIT_MOST_MS, tonumber(ms[0]))
end

-- Serves the clients that wait. The library does not listen while it has CONNECTIONS_MOST
-- connections. When some have ended it listens again as it runs the next time, so that has to be
-- before the next wait. A client that sends no whole request, such as a port scanner, must not
-- keep others waiting: where there is no place for another connection, one is closed.
local function run(library, daemon, list)
  local function connections() return library.MHD_get_daemon_info(daemon, INFO_CONNECTIONS)[0] end
  repeat
    local before = connections()
    library.MHD_run(daemon)
  until connections() >= before
  if connections() >= CONNECTIONS_MOST then close_silent(list) end
end

-- Serves requests until Ctrl-C or SIGTERM.
---@param context loam.Context
---@param library table of http.open()
---@param descriptor integer a socket that listens
---@param source loam.Pages
function http.serve(context, library, descriptor, source)
  local ffi = require("ffi")
  local list = new_connections()
  local callback = ffi.cast("loam_http_handler *", handler(context, library, source, list))
  local notice = ffi.cast("loam_http_noticer *", noticer(library, list))
  local daemon = start(library, descriptor, callback, notice)
  if daemon == nil then context.fail("libmicrohttpd could not start: too few descriptors?") end
  local events = library.MHD_get_daemon_info(daemon, INFO_EPOLL_FD)[0]
  local ms = ffi.new("unsigned long long[1]")
  while not context.posix.wait_for(events, patience(library, daemon, ms)) do
    run(library, daemon, list)
  end
  library.MHD_stop_daemon(daemon)
  callback:free()
  notice:free()
end

return http
