-- rust_ffi.lua - writes the declarations of bindings/rust/src/ffi.rs as C: luajit rust_ffi.lua FILE
--
-- The C text includes loam.h and declares each function and struct again. So a compiler refuses it
-- if a declaration differs from loam.h: by conflicting types, or by an assertion about a field.
local c_types = {
  ["c_char"] = "char", ["c_int"] = "int", ["c_uint"] = "unsigned", ["c_void"] = "void",
  ["u64"] = "uint64_t", ["usize"] = "size_t", ["loam_site"] = "loam_site",
  ["loam_owner_info"] = "loam_owner_info", ["loam_where"] = "loam_where",
  ["loam_stats_row"] = "loam_stats_row", ["loam_row_fn"] = "loam_row_fn",
}

local function c_type(rust)
  local kind, inner = rust:match("^%*(%l+) ([%w_]+)$")
  local name = c_types[inner or rust]
  assert(name, "ffi.rs: a type that this test does not know: " .. rust)
  if not kind then return name end
  return (kind == "const" and "const " or "") .. name .. " *"
end

local function parameters(list)
  local types = {}
  for rust in list:gmatch("[%w_]+: ([^,]+)") do types[#types + 1] = c_type(rust) end
  return #types > 0 and table.concat(types, ", ") or "void"
end

-- A type of a callback is declared again under its own name, which C11 allows for equal types.
local function each_callback(text, visit)
  for name, list in text:gmatch("pub type (loam_[%w_]+) = unsafe extern \"C\" fn%((.-)%);") do
    visit(name, parameters(list))
  end
end

local function each_function(text, visit)
  for name, list, rest in text:gmatch("pub fn (loam_[%w_]+)%((.-)%)([^;]*);") do
    visit(name, parameters(list), c_type(rest:match("%-> (.+)$") or "c_void"))
  end
end

-- Writes a copy of the struct under another name, and assertions that compare the offset and type
-- of each field.
local function write_struct(name, body)
  print(("struct rust_%s {"):format(name))
  local fields = {}
  for field, rust in body:gmatch("pub ([%w_]+): ([^,]+),") do
    print(("  %s %s;"):format(c_type(rust), field))
    fields[#fields + 1] = field
  end
  print("};")
  for _, field in ipairs(fields) do
    print(("_Static_assert(offsetof(struct rust_%s, %s) == offsetof(%s, %s), \"%s.%s\");"):format(
      name, field, name, field, name, field))
    print(("_Static_assert(__builtin_types_compatible_p(__typeof__(((struct rust_%s *)0)->%s), "
      .. "__typeof__(((%s *)0)->%s)), \"%s.%s\");"):format(name, field, name, field, name, field))
  end
  print(("_Static_assert(sizeof(struct rust_%s) == sizeof(%s), \"%s\");"):format(name, name, name))
  return #fields
end

local path = assert(arg[1], "the path of ffi.rs")
local file = assert(io.open(path))
local text = file:read("*a")
file:close()
print("#include <loam.h>")
local functions, fields = 0, 0
each_callback(text, function(name, types)
  print(("typedef void (*%s)(%s);"):format(name, types))
end)
each_function(text, function(name, types, result)
  print(("%s %s(%s);"):format(result, name, types))
  functions = functions + 1
end)
for name, body in text:gmatch("pub struct (loam_[%w_]+) {\n(.-)\n}") do
  if not body:find("_private") then fields = fields + write_struct(name, body) end
end
assert(functions > 0 and fields > 0, "no declarations")
io.stderr:write(("%d functions and %d fields\n"):format(functions, fields))
