-- loam.lua - loam for programs in LuaJIT and in Lua 5.4: the functions of loam.h with Lua's names
-- and lifetimes.
--
--   local loam = require("loam")
--   assert(loam.policy.load("prod.lua"))
--   local frame = assert(loam.block("frame.pixels", 1920 * 1080 * 4))
--   frame:write("first pixel")
--
-- A site argument is a tag, a site of loam.site, or nil, which means the current scope. A function
-- that fails returns nil and words; a wrong argument is an error. Blocks, arenas and arrays end
-- when Lua collects them, or immediately by release. Lua's collector does not know their sizes, so
-- release large ones; in Lua 5.4, `local b <close> = ...` releases b where its scope ends.
--
-- An address is a cdata pointer in LuaJIT and a light userdata in Lua 5.4. loam.native calls C: by
-- FFI in LuaJIT (native.lua), and as a C module in Lua 5.4 (native.c). In LuaJIT, loam.C is the
-- library itself, for functions that have no name here. Lua cannot receive callbacks from other
-- threads (loam_on_event); call loam.policy.info instead. A module belongs to its Lua state, which
-- one thread uses at a time.
if not jit and _VERSION ~= "Lua 5.4" then
  error("loam works in LuaJIT and in Lua 5.4, and this is " .. _VERSION, 0)
end
local native = require("loam.native")

local loam = { C = native.C, policy = {}, null = native.null }

-- ---- Errors, versions

local function words()
  local text = native.error()
  return text ~= "" and text or "no reason was given"
end

local function check(ok)
  if ok then return true end
  return nil, words()
end

local function given(value)
  if value ~= nil then return value end
  return nil, words()
end

-- Returns a number that must be whole, not negative and below 2^63, such as a size. LuaJIT would
-- convert a larger one to another size. `what` names it in the error, which is blamed on the caller
-- of the function that checks.
local function whole(value, what)
  if type(value) ~= "number" then
    error(("%s: a number expected, got %s"):format(what, native.name_of(value)), 3)
  elseif value < 0 or value % 1 ~= 0 then
    error(("%s %s: a whole number from 0 on is expected"):format(what, tostring(value)), 3)
  elseif value >= 2 ^ 63 then
    error(("%s %s: it must be below 2^63"):format(what, tostring(value)), 3)
  end
  return value
end

-- Whether a value is a number that C can have as an index or offset.
local function is_index(value)
  return type(value) == "number" and value % 1 == 0 and value > -2 ^ 63 and value < 2 ^ 63
end

-- Raises an error for a text with a NUL, because C would read it only so far. `what` names it, and
-- `level` is the level of `error`.
local function without_nul(value, what, level)
  if type(value) == "string" and value:find("\0", 1, true) then
    error(("a %s holds no NUL"):format(what), level)
  end
end

-- Raises an error for what is no text, or one that C cannot read. `what` names it in the error.
-- The error is blamed on the caller of the function that checks, or by `level`.
local function must_be_text(value, what, level)
  level = level or 3
  if type(value) ~= "string" then
    error(("%s: a string expected, got %s"):format(what, type(value)), level)
  end
  without_nul(value, what, level + 1)
end

local function must_be_bytes(value)
  if type(value) ~= "string" then
    error(("bytes: a string expected, got %s"):format(type(value)), 3)
  end
end

-- Fields in C: the least number that one holds, and the first beyond. A flag takes a boolean.
local line, uint = { 0, 2 ^ 31 }, { 0, 2 ^ 32 } -- line 0: not known
local flag, boolean = { -2 ^ 31, 2 ^ 31, is_flag = true }, { 0, 0, is_flag = true }

-- Raises an error if a table of named values has another name than those of `fields`, or a value
-- that its field does not hold. A field may also be "text".
local function must_know(values, what, fields)
  if type(values) ~= "table" then
    error(("%s: a table expected, got %s"):format(what, type(values)), 3)
  end
  for name, value in pairs(values) do
    local field = fields[name]
    if not field then error(("%s: there is no %s"):format(what, tostring(name)), 3) end
    if field == "text" then
      must_be_text(value, name, 4)
    elseif not (field.is_flag and type(value) == "boolean"
      or is_index(value) and value >= field[1] and value < field[2]) then
      local form = field.is_flag and "true or false" or "a whole number from %.0f to %.0f"
      error(("%s %s: " .. form .. " is expected")
        :format(name, tostring(value), field[1], field[2] - 1), 3)
    end
  end
end

function loam.version() return native.version() end

local function series(version) return version:match("^%d+%.%d+") end
if series(loam.version()) ~= series(native.built) then
  error(("loam.lua has version %s, the library has %s"):format(native.built, loam.version()), 0)
end

-- ---- Life and policy

local settings = {
  policy = "text", control_dir = "text", watch = flag, control = flag, lenient = flag,
  guard_report = flag, leaks = flag, guest = flag, max_leaves = uint, step_ms = uint,
  step_bytes = { 0, 2 ^ 53 },
}

-- Starts the engine. `config` has fields of loam_config: strings, numbers or booleans.
function loam.start(config)
  config = config or {}
  must_know(config, "start", settings)
  return check(native.start(config))
end
function loam.stop() native.stop() end
function loam.trim() return native.trim() end

function loam.policy.load(path)
  must_be_text(path, "path")
  return check(native.policy_load(path))
end
function loam.policy.load_text(name, text)
  must_be_text(name, "name")
  must_be_text(text, "text")
  return check(native.policy_load_text(name, text))
end
function loam.policy.watch(path)
  if path ~= nil then must_be_text(path, "path") end
  return check(native.policy_watch(path))
end

-- Returns the live policy and the last attempt to change it, as a table. `hash` is hexadecimal, and
-- `watching` a boolean.
function loam.policy.info()
  local info = native.policy_info()
  info.watching = info.watching ~= 0
  return info
end

-- Returns the answer of loam_policy_inspect as JSON text. `query` is lines such as "verb check".
function loam.policy.inspect(path, query)
  must_be_text(path, "path")
  must_be_text(query, "query")
  return given(native.policy_inspect(path, query))
end

-- ---- Sites

local by_tag = {}

local function site_of(site)
  local found = by_tag[site]
  if found or site == nil or site == native.null or native.is_address(site) then
    return found or site
  elseif type(site) ~= "string" then
    error("tag: a string or a site expected, got " .. native.name_of(site), 3)
  end
  without_nul(site, "tag", 4)
  found = native.site_get(site)
  if found == nil then error(words(), 3) end
  by_tag[site] = found
  return found
end

local parts_of_site = { tag = "text", file = "text", func = "text", module = "text", line = line }

-- Returns the site of a tag, or with a table { tag, file, func, module, line } the site of a place.
function loam.site(what)
  if type(what) == "string" then return site_of(what) end
  must_know(what, "site", parts_of_site)
  return given(native.site_at(what))
end

-- Returns the site of a tag at the line that calls this function. (C has line -1 for Lua.)
function loam.here(tag)
  local f = debug.getinfo(2, "Sln") or { currentline = 0 } -- nil: the first call of a coroutine
  local number = math.max(f.currentline, 0)
  return loam.site { tag = tag, file = f.short_src, func = f.name, line = number }
end

local function leave(ok, ...)
  native.scope_leave()
  if not ok then error((...), 0) end
  return ...
end

-- Calls f(...) in a scope of `site` and returns the results of f. An error of f is raised again. f
-- must not yield: the scope is the thread's, so it would hold in all coroutines until f returns.
function loam.within(site, f, ...)
  native.scope_enter(site_of(site))
  return leave(pcall(f, ...))
end

-- ---- Memory, as in C: the caller frees each block once

-- Returns an address that the caller gave, and raises an error for what is none. `or_nil`: nil and
-- loam.null are addresses too.
local function address(p, or_nil)
  if native.is_address(p) or or_nil and (p == nil or p == native.null) then return p end
  error("an address expected, got " .. native.name_of(p), 3)
end

function loam.malloc(site, size)
  return given(native.malloc(site_of(site), whole(size, "size")))
end
function loam.calloc(site, count, size)
  return given(native.calloc(site_of(site), whole(count, "count"), whole(size, "size")))
end
function loam.aligned_alloc(site, alignment, size)
  site, alignment = site_of(site), whole(alignment, "alignment")
  return given(native.aligned_alloc(site, alignment, whole(size, "size")))
end
function loam.realloc(site, p, size)
  return given(native.realloc(site_of(site), address(p, true), whole(size, "size")))
end
function loam.free(p) native.free(address(p, true)) end
function loam.usable_size(p) return native.usable_size(address(p, true)) end

-- Returns the owner of the block that p points into, as a table.
function loam.owner(p) return given(native.owner(address(p, true))) end

-- Bytes at an address. As in C, nothing checks that the address has so many bytes.
function loam.at(p, offset)
  if not is_index(offset) then
    error(("offset %s: a whole number is expected"):format(tostring(offset)), 2)
  end
  return native.at(address(p), offset)
end
function loam.read(p, size)
  return native.read(address(p), whole(size, "size"))
end
function loam.write(p, text)
  must_be_bytes(text)
  native.write(address(p), text)
end

-- ---- Handles: Lua's objects for blocks, arenas and arrays, each with one reference

-- Calls a function of C that makes an object, and returns a handle of it.
local function make(kind, create, ...)
  local handle = native.handle(kind)
  local p = create(...)
  if p == nil then return nil, words() end
  return native.fill(handle, p)
end

-- Returns the pointer of a handle; raises an error once it is released. The pointer is valid only
-- while Lua holds the handle: see kept.
local function live(handle, kind)
  local p = native.raw(handle, kind)
  if p then return p end
  local words_of = p == nil and "the %s was released" or "%s expected, got %s"
  error(words_of:format(kind, native.name_of(handle)), 3)
end

-- Returns the arguments after `handle`. Each use of a pointer of `live` is an argument of a call of
-- this function, so Lua holds the handle until that use is over. A tail call with the pointer would
-- drop the handle, and the collector could free the block while C reads it.
local function kept(_, ...) return ... end

-- ---- Blocks

local kinds = { "embedded", "owned", "external", "slice", "pooled" }
local block = {}

-- Returns the address of the data, which is valid while a handle is kept. In LuaJIT, `ctype` is the
-- type of the pointer, such as "uint8_t *".
function block:data(ctype)
  local p = live(self, "block")
  return kept(self, ctype and native.block_typed(p, ctype) or native.block_data(p))
end

-- Returns the address of `size` bytes from `offset` on, which must be in the block.
local function inside(p, offset, size)
  local has = native.block_size(p)
  if size > has or offset > has - size then -- offset + size may overflow in Lua 5.4
    error(("%d bytes from %d on: the block has %d"):format(size, offset, has), 3)
  end
  local data = native.block_data(p)
  if data == nil then -- an arena has pieces, and a wrapped block may have the address NULL
    error(("block %s: it has no memory that can be read here"):format(native.block_tag(p)), 3)
  end
  return native.at(data, offset)
end

-- Returns `size` bytes from `offset` on as a string; without them, all bytes.
function block:read(offset, size)
  local p = live(self, "block")
  offset = whole(offset or 0, "offset")
  size = whole(size or math.max(native.block_size(p) - offset, 0), "size")
  return kept(self, native.read(inside(p, offset, size), size))
end

-- Copies a string into the block, to `offset` (0 if it is left out).
function block:write(text, offset)
  must_be_bytes(text)
  whole(offset or 0, "offset")
  return kept(self, native.write(inside(live(self, "block"), offset or 0, #text), text))
end

function block:size() return kept(self, native.block_size(live(self, "block"))) end
function block:refcount() return kept(self, native.block_refcount(live(self, "block"))) end
function block:tag() return kept(self, native.block_tag(live(self, "block"))) end
function block:kind() return kept(self, kinds[native.block_kind(live(self, "block"))]) end
function block:slice(offset, size)
  whole(offset, "offset")
  whole(size, "size")
  return kept(self, make("block", native.block_slice, live(self, "block"), offset, size))
end
-- Returns another handle on this block, with a reference of its own.
function block:retain()
  return kept(self, make("block", native.block_retain, live(self, "block")))
end
-- Gives the reference to C code: returns the C block and leaves this handle released.
function block:give()
  local p = live(self, "block")
  native.clear(self)
  return p
end

native.define("block", block, block.size)

function loam.block(site, size)
  return make("block", native.block_new, site_of(site), whole(size, "size"))
end
function loam.zeroed(site, size)
  return make("block", native.block_zeroed, site_of(site), whole(size, "size"))
end
function loam.aligned(site, alignment, size)
  site, alignment = site_of(site), whole(alignment, "alignment")
  return make("block", native.block_aligned, site, alignment, whole(size, "size"))
end
-- Makes a block over memory at `p`. `dtor` is the address of a C function, not a callback into Lua,
-- because any thread may call it. A nil `dtor` means that the memory outlives the block.
function loam.wrap(site, p, size, dtor, ctx)
  whole(size, "size")
  if dtor ~= nil and not native.is_address(dtor) then
    error("dtor: the address of a C function expected, got " .. native.name_of(dtor), 2)
  end
  return make("block", native.block_wrap, site_of(site), address(p, true), size, dtor,
    address(ctx, true))
end
-- Returns a handle for a block from C, and takes over the reference.
function loam.take(c_block) return make("block", address, c_block, true) end

-- ---- Arenas

-- An arena has pieces, and no data of its own. A handle that `retain` returns is one of an arena.
local arena = {}
for name, method in pairs(block) do arena[name] = method end
arena.data, arena.read, arena.write, arena.slice = nil, nil, nil, nil

function arena:retain()
  return kept(self, make("arena", native.block_retain, live(self, "arena")))
end
function arena:alloc(size, alignment)
  whole(size, "size")
  whole(alignment or 16, "alignment")
  return kept(self, given(native.arena_alloc(live(self, "arena"), alignment or 16, size)))
end
function arena:resize(piece, size)
  whole(size, "size")
  return kept(self, given(native.arena_resize(live(self, "arena"), address(piece, true), size)))
end
function arena:reset() return kept(self, check(native.arena_reset(live(self, "arena")))) end
function arena:finalize() return kept(self, check(native.arena_finalize(live(self, "arena")))) end

native.define("arena", arena, arena.size)

local ZEROED, RESIZABLE = 1, 2 -- LOAM_ARENA_*
local arena_options = { zeroed = boolean, resizable = boolean, first = { 0, 2 ^ 53 } }

-- Makes an arena. `options`: resizable, zeroed (booleans), first (bytes of the first chunk).
function loam.arena(site, options)
  local o = options or {}
  must_know(o, "arena", arena_options)
  local flags = (o.zeroed and ZEROED or 0) + (o.resizable and RESIZABLE or 0)
  return make("arena", native.arena_new, site_of(site), flags, o.first or 0)
end

-- ---- Arrays: elements are counted from 1, as everywhere in Lua, and from -1 at the end

local array = {}

-- Turns an index of Lua into one of C: { start, stop, step }. {2, 4} is the elements 2, 3 and 4.
local function c_index(index, level)
  if is_index(index) then
    if index == 0 then error("element 0: the first element is 1", level) end
    return { index > 0 and index - 1 or index, nil, 0 }
  elseif type(index) ~= "table" then
    error(("element %s: a whole number or a range is expected"):format(tostring(index)), level)
  end
  for key in pairs(index) do
    if key ~= 1 and key ~= 2 and key ~= 3 then
      error(("a range is a list such as {2, 8, 2}: it has no %s"):format(tostring(key)), level)
    end
  end
  local first, last, step = index[1] or 1, index[2] or -1, index[3] or 1
  local are_whole = is_index(first) and is_index(last) and is_index(step)
  if not are_whole or first == 0 or last == 0 or step <= 0 then
    error(("{%s, %s, %s}: elements begin with 1, and a step is positive; all are whole numbers")
      :format(tostring(first), tostring(last), tostring(step)), level)
  end
  local stop = last
  if last < 0 then stop = last < -1 and last + 1 or nil end
  return { first > 0 and first - 1 or first, stop, step }
end

-- Turns the indices of a call into those of C. Its caller's caller is a user's function.
local function c_indices(...)
  local parts = { ... }
  for i = 1, select("#", ...) do parts[i] = c_index(parts[i], 4) end
  return parts
end

-- Returns loam's words on an index that failed, with elements counted from 1.
local function words_from_one(text)
  local function next_number(before, number) return ("%s%.0f"):format(before, number + 1) end
  return (text:gsub("^(index %d+ is )(%d+)", next_number):gsub("(row )(%d+)", next_number))
end

-- Returns a view: for each dimension a number, which selects one element, or a range {first, last,
-- step}; {} is the whole dimension.
function array:at(...)
  local p, parts = live(self, "array"), c_indices(...)
  local view, why = kept(self, make("array", native.array_index, p, parts))
  if not view then return nil, words_from_one(why) end
  return view
end
function array:field(name)
  must_be_text(name, "field name")
  return kept(self, make("array", native.array_field, live(self, "array"), name))
end

-- Makes a method that returns a view, which `create` makes.
local function viewing(create)
  return function(self) return kept(self, make("array", create, live(self, "array"))) end
end
array.follow, array.transpose = viewing(native.array_follow), viewing(native.array_transpose)
array.readonly, array.retain = viewing(native.array_readonly), viewing(native.array_retain)

-- Makes a method that returns what `read` does. Methods: shape returns a list with the sizes of the
-- fixed dimensions at the front of the type.
local function reading(read)
  return function(self) return kept(self, read(live(self, "array"))) end
end
array.type, array.shape = reading(native.array_type), reading(native.array_shape)
array.bytes, array.data = reading(native.array_bytes), reading(native.array_data)
function array:json() return kept(self, given(native.array_json(live(self, "array")))) end
function array:repr() return kept(self, given(native.array_repr(live(self, "array")))) end

-- Gives a row `count` elements.
function array:resize(count)
  return kept(self, check(native.array_resize(live(self, "array"), whole(count, "count"))))
end

local limits = { int8 = { -2 ^ 7, 2 ^ 7 }, int16 = { -2 ^ 15, 2 ^ 15 },
  int32 = { -2 ^ 31, 2 ^ 31 }, int64 = { -2 ^ 63, 2 ^ 63 }, uint8 = { 0, 2 ^ 8 },
  uint16 = { 0, 2 ^ 16 }, uint32 = { 0, 2 ^ 32 }, uint64 = { 0, 2 ^ 64 } }

-- Raises an error if a value is not one of this type.
local function must_fit(value, kind)
  local limit, wanted = limits[kind], "number"
  if kind == "bool" then wanted = "boolean" end
  if kind:match("^string") or kind == "bytes" then wanted = "string" end
  local ok = type(value) == wanted
  if ok and limit then
    ok = value >= limit[1] and value < limit[2] and value % 1 == 0
  end
  -- A finite number from here on would become infinite.
  if kind == "float32" and ok and math.abs(value) >= 2 ^ 128 - 2 ^ 103 then
    ok = math.abs(value) == math.huge
  end
  if not ok then error(("%s is no value of %s"):format(tostring(value), kind), 5) end
end

local function no_value(kind)
  return nil, kind .. " has no value in Lua: take a view of it, or json()"
end

local function value_at(p)
  if native.array_is_missing(p) then return nil end
  local kind = native.array_type(p):gsub("^%?", "")
  local data = native.array_data(p)
  if kind == "string" or kind == "bytes" then return native.load_text(data) end
  if kind:match("^categorical") then return given(native.array_category(p)) end
  local room = kind:match("^string%[(%d+)%]$")
  if room then return (native.read(data, tonumber(room)):gsub("%z+$", "")) end
  local value, known = native.load(data, kind)
  if not known then return no_value(kind) end
  return value
end

local function set_value(p, value)
  if value == nil then return check(native.array_omit(p)) end
  if type(value) == "string" then return check(native.array_set_text(p, value)) end
  local kind = native.array_type(p):gsub("^%?", "")
  local is_known = limits[kind] or kind == "bool" or kind:match("^float%d")
  if not is_known and not kind:match("^string") and kind ~= "bytes" then return no_value(kind) end
  must_fit(value, kind)
  if native.array_is_readonly(p) then return nil, "the array is read-only" end
  if not native.store(native.array_data(p), kind, value) then return no_value(kind) end
  return true
end

-- Calls `act` with a view of the array at `p`, which the caller keeps, for as long as that takes.
-- A value is the only result, because `table.insert(list, rows:get(1))` passes all of them on.
local function on_element(p, act, value, parts)
  local holder = native.handle("array")
  local view = #parts == 0 and native.array_retain(p) or native.array_index(p, parts)
  if view == nil then return nil, words_from_one(words()) end
  native.fill(holder, view)
  local result, why = act(view, value)
  holder:release()
  if why then return result, why end
  return result
end

-- Returns the value of the element at these indices: a number, boolean or string, or nil if it is
-- missing. In LuaJIT, integers of 64 bits become doubles; in Lua 5.4, those from 2^63 on.
function array:get(...)
  local parts = c_indices(...)
  return kept(self, on_element(live(self, "array"), value_at, nil, parts))
end
-- Sets the element at the indices after `value`; nil makes an option missing. Returns true.
function array:set(value, ...)
  local parts = c_indices(...)
  return kept(self, on_element(live(self, "array"), set_value, value, parts))
end

-- Returns the number of elements; 0 for an array without dimensions.
local function array_length(self)
  local size = kept(self, native.array_shape(live(self, "array")))[1]
  if size then return size end
  local all = self:at({}) -- the elements of a row of a var dimension, as a fixed dimension
  if not all then return 0 end
  size = all:shape()[1]
  all:release()
  return size
end

native.define("array", array, array_length)

-- Makes an array of a datashape such as "3 * var * float64".
function loam.array(site, datashape)
  must_be_text(datashape, "datashape")
  return make("array", native.array_new, site_of(site), datashape)
end
-- Makes an array over the data of a block from `offset` on (0 if it is left out).
function loam.array_over(over, datashape, offset)
  whole(offset or 0, "offset")
  must_be_text(datashape, "datashape")
  return kept(over, make("array", native.array_wrap, live(over, "block"), offset or 0, datashape))
end

-- ---- Figures

function loam.stats() return native.stats() end

local groups = { tag = 1, strategy = 2, generation = 4 } -- LOAM_BY_*

-- Returns a list of rows grouped by the arguments: "tag", "strategy" and "generation". Without
-- arguments the rows are grouped by tag and strategy.
function loam.rows(...)
  local keys, seen = 0, {}
  for _, name in ipairs(select("#", ...) > 0 and { ... } or { "tag", "strategy" }) do
    local key = groups[name]
      or error(("rows by %s: use tag, strategy, generation"):format(tostring(name)), 2)
    if not seen[name] then keys = keys + key end
    seen[name] = true
  end
  return given(native.rows(keys))
end

-- Returns how many blocks were made and ended so far, by kind:
-- { made = { embedded = 3, ... }, ended = { ... } }.
function loam.block_stats()
  local made, ended = native.block_stats()
  local out = { made = {}, ended = {} }
  for i, kind in ipairs(kinds) do out.made[kind], out.ended[kind] = made[i], ended[i] end
  return out
end

return loam
