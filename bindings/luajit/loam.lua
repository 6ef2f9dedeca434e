-- loam - loam for LuaJIT programs: the functions of loam.h with Lua's names and lifetimes.
--
--   local loam = require("loam")
--   assert(loam.policy.load("prod.lua"))
--   local frame = assert(loam.block("frame.pixels", 1920 * 1080 * 4))
--   local pixels = frame:data("uint8_t *")
--
-- A site argument is a tag, a site of loam.site, or nil, which means the current scope. A function
-- that fails returns nil and words. Blocks and arenas end when Lua collects them, or immediately by
-- release. Lua's collector does not know their sizes, so release large ones.
--
-- The declarations are the text of loam.h, which the build puts into loam/cdef.lua. loam.C is the
-- library itself, for functions that have no name here. Lua cannot receive callbacks from other
-- threads (loam_on_event); call loam.policy.info instead. A module belongs to its Lua state, which
-- one thread uses at a time.
local ffi = require("ffi")
local native = require("loam.native")

ffi.cdef(require("loam.cdef"))
-- Handles: Lua's objects for blocks. Each has one reference to its block.
ffi.cdef([[
  struct loam_lua_block { loam_block *block; };
  struct loam_lua_arena { loam_block *block; };
]])

local C = native.load()
local loam = { C = C, policy = {}, null = ffi.cast("void *", nil) }

-- ---- Errors, versions

local function words()
  local text = ffi.string(C.loam_error())
  return text ~= "" and text or "no reason was given"
end

local function check(status)
  if status == 0 then return true end
  return nil, words()
end

local function pointer(p)
  if p ~= nil then return p end
  return nil, words()
end

function loam.version() return ffi.string(C.loam_version()) end

local function series(version) return version:match("^%d+%.%d+") end
if series(loam.version()) ~= series(native.version) then
  error(("loam.lua has version %s, the library has %s"):format(native.version, loam.version()), 0)
end

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
  local status = call(c)
  c:free()
  if failed then error(why, 0) end
  return status
end
jit.off(with_callback, true)

-- ---- Life and policy

-- Starts the engine. `config` has fields of loam_config: strings, numbers or booleans.
function loam.start(config)
  local given = ffi.new("loam_config")
  given.size = ffi.sizeof(given)
  for name, value in pairs(config or {}) do
    given[name] = type(value) == "boolean" and (value and 1 or 0) or value
  end
  return check(C.loam_start(given))
end

function loam.stop() C.loam_stop() end
function loam.trim() return tonumber(C.loam_trim()) end

function loam.policy.load(path) return check(C.loam_policy_load(path)) end
function loam.policy.load_text(name, text) return check(C.loam_policy_load_text(name, text)) end
function loam.policy.watch(path) return check(C.loam_policy_watch(path)) end

-- Returns the live policy and the last attempt to change it, as a table.
function loam.policy.info()
  local info = ffi.new("struct loam_policy_info")
  C.loam_policy_info(info)
  return fields(info,
    "generation hash loaded_at loads refused last_at last tags_refused plans sites watching",
    "name path last_error")
end

-- Returns the answer of loam_policy_inspect as JSON text. `query` is lines such as "verb check".
function loam.policy.inspect(path, query)
  local pieces = {}
  local status = with_callback("loam_write_fn", function(_, text, length)
    pieces[#pieces + 1] = ffi.string(text, length)
  end, function(write) return C.loam_policy_inspect(path, query, write, nil) end)
  if status ~= 0 then return nil, words() end
  return table.concat(pieces)
end
jit.off(loam.policy.inspect, true)

-- ---- Sites

local by_tag = {}

local function site_of(site)
  if type(site) ~= "string" then return site end
  local found = by_tag[site]
  if not found then
    found = C.loam_site_get(site)
    if found == nil then error(words(), 3) end
    by_tag[site] = found
  end
  return found
end

-- Returns the site of a tag, or with a table { tag, file, func, module, line } the site of a place.
function loam.site(what)
  if type(what) == "string" then return site_of(what) end
  return pointer(C.loam_site_at(ffi.new("loam_where", what)))
end

-- Returns the site of a tag at the line that calls this function.
function loam.here(tag)
  local at = debug.getinfo(2, "Sln")
  return loam.site { tag = tag, file = at.short_src, func = at.name, line = at.currentline }
end

local function leave(ok, ...)
  C.loam_scope_leave()
  if not ok then error((...), 0) end
  return ...
end

-- Calls f(...) in a scope of `site` and returns the results of f. An error of f is raised again.
function loam.within(site, f, ...)
  C.loam_scope_enter(site_of(site))
  return leave(pcall(f, ...))
end

-- ---- Memory, as in C: the caller frees each block once

function loam.malloc(site, size) return pointer(C.loam_malloc(site_of(site), size)) end
function loam.calloc(site, count, size)
  return pointer(C.loam_calloc(site_of(site), count, size))
end
function loam.aligned_alloc(site, alignment, size)
  return pointer(C.loam_aligned_alloc(site_of(site), alignment, size))
end
function loam.realloc(site, p, size) return pointer(C.loam_realloc(site_of(site), p, size)) end
function loam.free(p) C.loam_free(p) end
function loam.usable_size(p) return tonumber(C.loam_usable_size(p)) end

-- Returns the owner of the block that p points into, as a table.
function loam.owner(p)
  local info = ffi.new("loam_owner_info")
  local status = C.loam_owner(p, info)
  if status ~= 0 then return nil, words() end
  local out = fields(info, "line generation size", "tag file func module strategy kind handler")
  out.base = info.base
  return out
end

-- ---- Blocks

local kinds = { "embedded", "owned", "external", "slice", "pooled" }
local Block, Arena

-- Returns the C block of a handle; raises an error once it is released.
local function live(handle)
  if handle.block == nil then error("the block was released", 3) end
  return handle.block
end

local function release(handle)
  local block = handle.block
  handle.block = nil
  C.loam_block_release(block) -- NULL is allowed
end

local function handle(kind, block)
  if block == nil then return nil, words() end
  return kind(block)
end

local block = {}
block.release = release

-- Returns the address of the data as a pointer of this type. It is valid while a handle is kept.
function block:data(ctype) return ffi.cast(ctype or "void *", C.loam_block_data(live(self))) end
function block:size() return tonumber(C.loam_block_size(live(self))) end
function block:refcount() return tonumber(C.loam_block_refcount(live(self))) end
function block:tag() return ffi.string(C.loam_block_tag(live(self))) end
function block:kind() return kinds[tonumber(C.loam_block_kind_of(live(self)))] end
function block:slice(offset, size)
  return handle(Block, C.loam_block_slice(live(self), offset, size))
end
-- Returns another handle on this block, with a reference of its own.
function block:retain() return Block(C.loam_block_retain(live(self))) end
-- Gives the reference to C code: returns the C block and leaves this handle released.
function block:give()
  local given = live(self)
  self.block = nil
  return given
end

Block = ffi.metatype("struct loam_lua_block", { __index = block, __gc = release,
  __len = block.size })

function loam.block(site, size) return handle(Block, C.loam_block_new(site_of(site), size)) end
function loam.zeroed(site, size) return handle(Block, C.loam_block_zeroed(site_of(site), size)) end
function loam.aligned(site, alignment, size)
  return handle(Block, C.loam_block_aligned(site_of(site), alignment, size))
end
-- Makes a block over memory at `p`. `dtor` is a C function, not a callback into Lua, because any
-- thread may call it. A nil `dtor` means that the memory outlives the block.
function loam.wrap(site, p, size, dtor, ctx)
  return handle(Block, C.loam_block_wrap(site_of(site), p, size, dtor, ctx))
end
-- Returns a handle for a block from C, and takes over the reference.
function loam.take(c_block) return handle(Block, c_block) end

-- ---- Arenas

local arena = setmetatable({}, { __index = block })

function arena:alloc(size, alignment)
  return pointer(C.loam_arena_alloc(live(self), alignment or 16, size))
end
function arena:resize(piece, size) return pointer(C.loam_arena_resize(live(self), piece, size)) end
function arena:reset() return check(C.loam_arena_reset(live(self))) end
function arena:finalize() return check(C.loam_arena_finalize(live(self))) end

Arena = ffi.metatype("struct loam_lua_arena", { __index = arena, __gc = release })

-- Makes an arena. `options`: resizable, zeroed (booleans), first (bytes of the first chunk).
function loam.arena(site, options)
  local o = options or {}
  local flags = (o.zeroed and C.LOAM_ARENA_ZEROED or 0)
    + (o.resizable and C.LOAM_ARENA_RESIZABLE or 0)
  return handle(Arena, C.loam_arena_new(site_of(site), flags, o.first or 0))
end

-- ---- Figures

function loam.stats()
  local stats = ffi.new("struct loam_stats")
  C.loam_stats(stats)
  return fields(stats, "generation live_bytes live_blocks total_bytes total_blocks reserved_bytes "
    .. "region_bytes metadata_bytes denied fallbacks failed bad_frees threads sites strategies",
    "")
end

local groups = { tag = C.LOAM_BY_TAG, strategy = C.LOAM_BY_STRATEGY,
  generation = C.LOAM_BY_GENERATION }

-- Returns a list of rows grouped by the arguments: "tag", "strategy" and "generation". Without
-- arguments the rows are grouped by tag and strategy.
function loam.rows(...)
  local keys, rows = 0, {}
  for _, name in ipairs(select("#", ...) > 0 and { ... } or { "tag", "strategy" }) do
    keys = keys
      + (groups[name] or error(("rows by %s: use tag, strategy, generation"):format(name), 2))
  end
  local status = with_callback("loam_row_fn", function(_, row)
    rows[#rows + 1] = fields(row, "generation live_bytes live_blocks total_bytes total_blocks",
      "tag strategy kind")
  end, function(callback) return C.loam_stats_by(keys, callback, nil) end)
  if status ~= 0 then return nil, words() end
  return rows
end
jit.off(loam.rows, true)

-- Returns how many blocks were made and ended so far, by kind:
-- { made = { embedded = 3, ... }, ended = { ... } }.
function loam.block_stats()
  local stats, out = ffi.new("struct loam_block_stats"), { made = {}, ended = {} }
  C.loam_block_stats(stats)
  for i, kind in ipairs(kinds) do
    out.made[kind], out.ended[kind] = tonumber(stats.made[i]), tonumber(stats.ended[i])
  end
  return out
end

return loam
