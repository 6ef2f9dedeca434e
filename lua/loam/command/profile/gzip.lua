-- gzip.lua - compression with gzip, by the zlib of the system.
--
-- Where there is no zlib, nothing is compressed: each reader of pprof files also takes plain ones.

local gzip = {}

local DECLARATIONS = [[
typedef struct loam_zlib_stream {
  const uint8_t *next_in;
  unsigned avail_in;
  unsigned long total_in;
  uint8_t *next_out;
  unsigned avail_out;
  unsigned long total_out;
  const char *message;
  void *state, *alloc, *free, *opaque;
  int data_type;
  unsigned long adler, reserved;
} loam_zlib_stream;
const char *zlibVersion(void);
int deflateInit2_(loam_zlib_stream *, int, int, int, int, int, const char *, int);
int deflate(loam_zlib_stream *, int);
int deflateEnd(loam_zlib_stream *);
int inflateInit2_(loam_zlib_stream *, int, const char *, int);
int inflate(loam_zlib_stream *, int);
int inflateEnd(loam_zlib_stream *);
]]

local LEVEL, DEFLATED, MEMORY, DEFAULT_STRATEGY = 6, 8, 8, 0
local GZIP_WINDOW = 15 + 16 -- the largest window; 16 asks for the head and the sum of gzip
local NO_FLUSH, FINISH = 0, 4
local STREAM_END = 1
local PIECE = 65536       -- bytes of output at a time
local LARGEST = 2 ^ 28    -- bytes that a file may have when it is unpacked

local ffi, zlib -- nil: not looked for yet; zlib is false if the system has none

local function load_zlib()
  if zlib ~= nil then return zlib end
  local is_there
  is_there, ffi = pcall(require, "ffi")
  if is_there then is_there, zlib = pcall(ffi.load, "libz.so.1") end
  if not is_there then
    zlib = false
    return zlib
  end
  pcall(ffi.cdef, DECLARATIONS) -- fails if this module was loaded before, with equal declarations
  return zlib
end

---@return boolean whether the system has a zlib
function gzip.is_there()
  return load_zlib() ~= false
end

-- Runs a stream to its end. Returns the output, or nil and zlib's words.
local function run(stream, step, flush)
  local piece, out, size = ffi.new("uint8_t[?]", PIECE), {}, 0
  repeat
    stream.next_out, stream.avail_out = piece, PIECE
    local status = step(stream, flush)
    local length = PIECE - stream.avail_out
    if status < 0 or status > STREAM_END then
      return nil, stream.message ~= nil and ffi.string(stream.message) or "it is cut off"
    end
    if status ~= STREAM_END and length == 0 then return nil, "it is cut off" end
    out[#out + 1], size = ffi.string(piece, length), size + length
    if size > LARGEST then return nil, "it has more than 256 MiB when it is unpacked" end
  until status == STREAM_END
  return table.concat(out)
end

local function new_stream(text)
  local stream = ffi.new("loam_zlib_stream")
  stream.next_in, stream.avail_in = ffi.cast("const uint8_t *", text), #text
  return stream
end

-- Compresses a text. If there is no zlib, the function returns the text unchanged.
---@return string
function gzip.compress(text)
  if not load_zlib() then return text end
  local stream = new_stream(text)
  if zlib.deflateInit2_(stream, LEVEL, DEFLATED, GZIP_WINDOW, MEMORY, DEFAULT_STRATEGY,
    zlib.zlibVersion(), ffi.sizeof(stream)) ~= 0 then
    return text
  end
  local packed = run(stream, zlib.deflate, FINISH)
  zlib.deflateEnd(stream)
  return packed or text
end

---@return boolean whether the text begins as gzip's output does
function gzip.is_packed(text)
  return text:sub(1, 2) == "\31\139"
end

-- Unpacks what gzip has compressed.
---@return string|nil text
---@return string|nil words why that is not possible
function gzip.uncompress(text)
  if not load_zlib() then return nil, "it is compressed, and this system has no libz.so.1" end
  local stream = new_stream(text)
  if zlib.inflateInit2_(stream, GZIP_WINDOW, zlib.zlibVersion(), ffi.sizeof(stream)) ~= 0 then
    return nil, "zlib has no memory"
  end
  local plain, words = run(stream, zlib.inflate, NO_FLUSH)
  zlib.inflateEnd(stream)
  return plain, words
end

return gzip
