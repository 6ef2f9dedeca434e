-- native.lua - the back end of loam.lua for LuaJIT: the functions of loam.h, called by FFI.
--
-- native.c is the back end for Lua 5.4, and its functions have these names too. A function returns
-- nil or false on failure, and then native.error() returns the words. Pointers are cdata here. A
-- handle is an object with one pointer, to a block, an arena or an array, whose reference ends with
-- the handle.
--
-- The declarations are the text of loam.h, which the build puts into loam/cdef.lua.
local bit = require("bit")
local ffi = require("ffi")
local library = require("loam.library")

-- A program may drop this module and load it again. LuaJIT keeps the declarations, and the methods
-- of the handles, of the first time.
local is_declared = pcall(ffi.typeof, "struct loam_lua_array")
if not is_declared then
  -- A program may have declared loam.h itself.
  if not pcall(ffi.typeof, "loam_config") then ffi.cdef(require("loam.cdef")) end
  ffi.cdef([[
    struct loam_lua_block { void *p; };
    struct loam_lua_arena { void *p; };
    struct loam_lua_array { void *p; };
  ]])
end

local C = library.load()
local native = { C = C, built = library.version, null = ffi.cast("void *", nil) }

function native.error() return ffi.string(C.loam_error()) end
function native.version() return ffi.string(C.loam_version()) end

-- Returns the fields of a struct as a table: numbers, and strings that are copied from C.
local function fields(struct, numbers, texts)
  local out = {}
  for name in numbers:gmatch("%S+") do out[name] = tonumber(struct[name]) end
  for name in texts:gmatch("%S+") do out[name] = ffi.string(struct[name]) end
  return out
end

-- Calls `call` with a C callback that runs `callback`. The callback runs during a C function, which
-- LuaJIT's compiled code does not allow; so functions that use this are not compiled.
local function with_callback(ctype, callback, call)
  local failed, why
  local c = ffi.cast(ctype, function(...)
    if failed then return end
    local ok, reason = pcall(callback, ...)
    if not ok then failed, why = true, reason end
  end)
  local called, status = pcall(call, c)
  c:free() -- also after a wrong argument: LuaJIT has few callbacks
  if not called then failed, why = true, status end
  if failed then error(why, 0) end
  return status
end
jit.off(with_callback, true)

-- Returns the text that a C function writes in pieces.
local function written(call)
  local pieces = {}
  local status = with_callback("loam_write_fn", function(_, text, length)
    pieces[#pieces + 1] = ffi.string(text, length)
  end, call)
  return status == 0 and table.concat(pieces) or nil
end
jit.off(written, true)

local makers = {}

local function is_handle(p)
  return ffi.istype(makers.block, p) or ffi.istype(makers.arena, p) or ffi.istype(makers.array, p)
end

-- Returns whether a value is an address: a pointer or an array of C, or a light userdata of the
-- host. LuaJIT would also take nil, a string, a file or a number for one, and a handle for the
-- address of the handle.
function native.is_address(p)
  if type(p) == "userdata" then return getmetatable(p) == nil end -- a file has a metatable
  return type(p) == "cdata" and p ~= nil and not is_handle(p) and tonumber(p) == nil
end

-- Returns the name of a value's type, such as "loam.block" or "number".
function native.name_of(value)
  for kind, maker in pairs(makers) do
    if ffi.istype(maker, value) then return "loam." .. kind end
  end
  return type(value)
end

-- ---- Life and policy

function native.start(config)
  local given = ffi.new("loam_config")
  given.size = ffi.sizeof(given)
  for name, value in pairs(config) do
    given[name] = type(value) == "boolean" and (value and 1 or 0) or value
  end
  return C.loam_start(given) == 0
end

native.stop = C.loam_stop
function native.trim() return tonumber(C.loam_trim()) end
function native.policy_load(path) return C.loam_policy_load(path) == 0 end
function native.policy_load_text(name, text) return C.loam_policy_load_text(name, text) == 0 end
function native.policy_watch(path) return C.loam_policy_watch(path) == 0 end

function native.policy_info()
  local info = ffi.new("struct loam_policy_info")
  C.loam_policy_info(info)
  local out = fields(info,
    "generation loaded_at loads refused last_at last tags_refused plans sites watching",
    "name path last_error")
  out.hash = bit.tohex(info.hash, 16)
  return out
end

function native.policy_inspect(path, query)
  return written(function(write) return C.loam_policy_inspect(path, query, write, nil) end)
end
jit.off(native.policy_inspect, true)

-- ---- Sites and memory

native.site_get = C.loam_site_get
function native.site_at(where) return C.loam_site_at(ffi.new("loam_where", where)) end
native.scope_enter = C.loam_scope_enter
native.scope_leave = C.loam_scope_leave

native.malloc = C.loam_malloc
native.calloc = C.loam_calloc
native.aligned_alloc = C.loam_aligned_alloc
function native.realloc(site, p, size) return C.loam_realloc(site, p, size) end
function native.free(p) C.loam_free(p) end
function native.usable_size(p) return tonumber(C.loam_usable_size(p)) end

function native.owner(p)
  local info = ffi.new("loam_owner_info")
  if C.loam_owner(p, info) ~= 0 then return nil end
  local out = fields(info, "line generation size", "tag file func module strategy kind handler")
  out.base = info.base
  return out
end

function native.at(p, offset)
  return ffi.cast("void *", ffi.cast("char *", p) + offset)
end
function native.read(p, size) return ffi.string(p, size) end
function native.write(p, text) ffi.copy(p, text, #text) end

local ctypes = { bool = "bool *", int8 = "int8_t *", int16 = "int16_t *", int32 = "int32_t *",
  int64 = "int64_t *", uint8 = "uint8_t *", uint16 = "uint16_t *", uint32 = "uint32_t *",
  uint64 = "uint64_t *", float32 = "float *", float64 = "double *" }

-- Returns the number or boolean of this type at p; second result: whether Lua has such values.
function native.load(p, kind)
  local ctype = ctypes[kind]
  if not ctype then return nil, false end
  local value = ffi.cast(ctype, p)[0]
  return type(value) == "cdata" and tonumber(value) or value, true
end

-- Stores a number or boolean. Returns false if Lua has no values of this type.
function native.store(p, kind, value)
  local ctype = ctypes[kind]
  if not ctype then return false end
  ffi.cast(ctype, p)[0] = value
  return true
end

-- A struct without a name is a new type wherever its text is parsed, and LuaJIT keeps each type.
local text_value = ffi.typeof("struct { char *begin; size_t size; } *")

-- Returns the text of the string value at p.
function native.load_text(p)
  local text = ffi.cast(text_value, p)[0]
  return ffi.string(text.begin, text.size)
end

-- ---- Handles

local function release_block(handle)
  local p = handle.p
  handle.p = nil
  C.loam_block_release(p) -- NULL is allowed
end

local function release_array(handle)
  local p = handle.p
  handle.p = nil
  C.loam_array_release(p) -- NULL is allowed
end

-- Declares a kind of handle, "block", "arena" or "array", with its methods. Adds the method
-- release, which ends the handle's reference immediately.
function native.define(kind, methods, length)
  methods.release = kind == "array" and release_array or release_block
  local has_methods = is_declared or makers[kind]
  makers[kind] = ffi.typeof("struct loam_lua_" .. kind)
  if has_methods then return end
  ffi.metatype(makers[kind], { __index = methods, __gc = methods.release, __len = length })
end

-- Returns an empty handle. loam.lua makes the handle before the object that it will hold, so that
-- an error of Lua cannot lose the object.
function native.handle(kind) return makers[kind]() end

function native.fill(handle, p)
  handle.p = p
  return handle
end

-- Returns the pointer of a handle of this kind, nil if it was released, or false for what is no
-- such handle. An arena is a block too.
function native.raw(handle, kind)
  local is_one = ffi.istype(makers[kind], handle)
    or kind == "block" and ffi.istype(makers.arena, handle)
  if not is_one then return false end
  return handle.p ~= nil and handle.p or nil
end

-- Empties a handle without a release.
function native.clear(handle) handle.p = nil end

-- ---- Blocks and arenas

native.block_new = C.loam_block_new
native.block_zeroed = C.loam_block_zeroed
native.block_aligned = C.loam_block_aligned
function native.block_wrap(site, p, size, dtor, ctx)
  return C.loam_block_wrap(site, p, size, dtor, ctx)
end
native.block_slice = C.loam_block_slice
native.block_retain = C.loam_block_retain
native.block_data = C.loam_block_data
function native.block_typed(p, ctype) return ffi.cast(ctype, C.loam_block_data(p)) end
function native.block_size(p) return tonumber(C.loam_block_size(p)) end
function native.block_refcount(p) return tonumber(C.loam_block_refcount(p)) end
function native.block_tag(p) return ffi.string(C.loam_block_tag(p)) end
function native.block_kind(p) return tonumber(C.loam_block_kind_of(p)) end

native.arena_new = C.loam_arena_new
native.arena_alloc = C.loam_arena_alloc
native.arena_resize = C.loam_arena_resize
function native.arena_reset(p) return C.loam_arena_reset(p) == 0 end
function native.arena_finalize(p) return C.loam_arena_finalize(p) == 0 end

-- ---- Arrays

-- Calls a C function that makes an array or a type into its last argument.
local function made(ctype, call, ...)
  local out = ffi.new(ctype)
  local arguments = { ... }
  local n = select("#", ...)
  arguments[n + 1] = out
  if call(unpack(arguments, 1, n + 1)) ~= 0 then return nil end
  return out[0]
end

local function with_type(text, call)
  local kind = made("loam_type *[1]", C.loam_type_parse, text)
  if not kind then return nil end
  local array = call(kind)
  C.loam_type_release(kind)
  return array
end

function native.array_new(site, text)
  return with_type(text, function(kind)
    return made("loam_array *[1]", C.loam_array_new, site, kind)
  end)
end

function native.array_wrap(block, offset, text)
  return with_type(text, function(kind)
    return made("loam_array *[1]", C.loam_array_wrap, block, offset, kind, nil)
  end)
end

-- `parts` is a list of lists { start, stop, step } as in loam_index. A nil is a value left out.
function native.array_index(p, parts)
  local index = ffi.new("loam_index[?]", #parts)
  local left_out = -0x8000000000000000LL
  for i, part in ipairs(parts) do
    index[i - 1].start = part[1] or left_out
    index[i - 1].stop = part[2] or left_out
    index[i - 1].step = part[3]
  end
  return made("loam_array *[1]", C.loam_array_index, p, #parts, index)
end

function native.array_field(p, name)
  return made("loam_array *[1]", C.loam_array_field, p, name)
end
function native.array_follow(p) return made("loam_array *[1]", C.loam_array_follow, p) end
function native.array_transpose(p) return made("loam_array *[1]", C.loam_array_transpose, p) end
function native.array_readonly(p) return made("loam_array *[1]", C.loam_array_readonly, p) end

native.array_retain = C.loam_array_retain
native.array_data = C.loam_array_data
function native.array_type(p) return ffi.string(C.loam_type_text(C.loam_array_type(p))) end
function native.array_bytes(p) return tonumber(C.loam_array_bytes(p)) end

function native.array_shape(p)
  local shape = ffi.new("size_t[?]", 64)
  local n, out = tonumber(C.loam_array_dims(p, 64, shape, nil)), {}
  for i = 1, math.min(n, 64) do out[i] = tonumber(shape[i - 1]) end
  return out
end

function native.array_is_readonly(p)
  local info = ffi.new("struct loam_array_info")
  C.loam_array_info(p, info)
  return info.readonly ~= 0
end

-- Returns the name of the category that a scalar categorical holds, or nil for a code without one.
function native.array_category(p)
  local info, field = ffi.new("struct loam_type_info"), ffi.new("struct loam_type_field")
  local kind = C.loam_array_type(p)
  C.loam_type_info(kind, info)
  if info.element ~= nil then -- of an option
    kind = info.element
    C.loam_type_info(kind, info)
  end
  local ctype = info.size == 1 and "uint8_t *" or "uint16_t *"
  local code = ffi.cast(ctype, C.loam_array_data(p))[0]
  return C.loam_type_field(kind, code, field) == 0 and ffi.string(field.name) or nil
end

function native.array_resize(p, count) return C.loam_array_resize(p, count) == 0 end
function native.array_set_text(p, text) return C.loam_array_set_text(p, text, #text) == 0 end
function native.array_omit(p) return C.loam_array_omit(p) == 0 end
function native.array_is_missing(p) return C.loam_array_is_missing(p) ~= 0 end
function native.array_json(p)
  return written(function(write) return C.loam_array_json(p, write, nil) end)
end
function native.array_repr(p)
  return written(function(write) return C.loam_array_repr(p, write, nil) end)
end
jit.off(native.array_json, true)
jit.off(native.array_repr, true)

-- ---- Figures

function native.stats()
  local stats = ffi.new("struct loam_stats")
  C.loam_stats(stats)
  return fields(stats, "generation live_bytes live_blocks total_bytes total_blocks reserved_bytes "
    .. "region_bytes metadata_bytes denied fallbacks failed bad_frees threads sites strategies",
    "")
end

-- `keys` is a sum of the LOAM_BY_* of loam.h.
function native.rows(keys)
  local rows = {}
  local status = with_callback("loam_row_fn", function(_, row)
    rows[#rows + 1] = fields(row, "generation live_bytes live_blocks total_bytes total_blocks",
      "tag strategy kind")
  end, function(callback) return C.loam_stats_by(keys, callback, nil) end)
  return status == 0 and rows or nil
end
jit.off(native.rows, true)

-- Returns two lists by loam_block_kind, from 1 on: how many blocks were made, and how many ended.
function native.block_stats()
  local stats, made_of, ended_of = ffi.new("struct loam_block_stats"), {}, {}
  C.loam_block_stats(stats)
  for i = 1, 5 do
    made_of[i], ended_of[i] = tonumber(stats.made[i]), tonumber(stats.ended[i])
  end
  return made_of, ended_of
end

return native
