-- symbols.lua - the functions and lines of addresses in a process, by elfutils' libdw.
--
-- libdw reads the symbol tables and the debugging information of the files that the process has
-- mapped; for that the process need not take part. If the process has ended, libdw reads a list of
-- mappings that the caller read before. Names of C++ are demangled by the system's libstdc++. Where
-- a library is missing, its part is left out: then profiles have addresses, and pprof looks them up
-- itself.

local symbols = {}

local DECLARATIONS = [[
typedef struct Dwfl Dwfl;
typedef struct Dwfl_Module Dwfl_Module;
typedef struct Dwfl_Line Dwfl_Line;
typedef struct loam_dwfl_callbacks {
  void *find_elf, *find_debuginfo, *section_address;
  char **debuginfo_path;
} loam_dwfl_callbacks;
int dwfl_linux_proc_find_elf(Dwfl_Module *, void **, const char *, uint64_t, char **, void **);
int dwfl_standard_find_debuginfo(Dwfl_Module *, void **, const char *, uint64_t, const char *,
                                 const char *, uint32_t, char **);
Dwfl *dwfl_begin(const loam_dwfl_callbacks *);
int dwfl_linux_proc_report(Dwfl *, int);
int dwfl_linux_proc_maps_report(Dwfl *, void *);
int dwfl_module_build_id(Dwfl_Module *, const unsigned char **, uint64_t *);
void *fmemopen(void *, size_t, const char *);
int fclose(void *);
int dwfl_report_end(Dwfl *, void *, void *);
Dwfl_Module *dwfl_addrmodule(Dwfl *, uint64_t);
const char *dwfl_module_addrname(Dwfl_Module *, uint64_t);
Dwfl_Line *dwfl_module_getsrc(Dwfl_Module *, uint64_t);
const char *dwfl_lineinfo(Dwfl_Line *, uint64_t *, int *, int *, uint64_t *, uint64_t *);
void dwfl_end(Dwfl *);
char *__cxa_demangle(const char *, char *, size_t *, int *);
void free(void *);
]]

---@class loam.Symbol
---@field name string as the source has it
---@field system_name string|nil as the linker has it, if that differs
---@field file string|nil
---@field line integer|nil

---@class loam.Symbols
---@field find fun(address: number, build_id: string|nil): loam.Symbol|nil
---@field close fun()

-- Returns a library, or nil where the system has none of its names.
local function load(ffi, ...)
  for i = 1, select("#", ...) do
    local ok, library = pcall(ffi.load, (select(i, ...)))
    if ok then return library end
  end
  return nil
end

-- Returns a function that demangles a name of C++ or Rust's legacy scheme, else returns the name.
local function demangler(ffi)
  local cxx = load(ffi, "libstdc++.so.6", "libc++abi.so.1")
  return function(name)
    if not cxx or name:sub(1, 2) ~= "_Z" then return name end
    local text = cxx.__cxa_demangle(name, nil, nil, nil)
    if text == nil then return name end
    local demangled = ffi.string(text)
    ffi.C.free(text)
    return demangled
  end
end

-- Returns the file and the line of an address; nothing without debugging information.
local function source_of(ffi, dw, module, address)
  local line = dw.dwfl_module_getsrc(module, address)
  if line == nil then return nil, nil end
  local number = ffi.new("int[1]")
  local file = dw.dwfl_lineinfo(line, nil, number, nil, nil, nil)
  if file == nil then return nil, nil end
  return ffi.string(file), number[0] > 0 and number[0] or nil
end

-- Returns the build id of the file that libdw reads for a module, in hexadecimal; nil: it has none.
local function build_id_of(ffi, dw, module)
  local bytes, at = ffi.new("const unsigned char *[1]"), ffi.new("uint64_t[1]")
  local count = dw.dwfl_module_build_id(module, bytes, at)
  if count <= 0 then return nil end
  return (ffi.string(bytes[0], count):gsub(".", function(c) return ("%02x"):format(c:byte()) end))
end

-- `build_id` is the build id that the file had in the process, if that is known: a file that was
-- replaced since has other functions at these addresses.
local function find_by(ffi, dw, session, demangle)
  return function(address, build_id)
    local module = dw.dwfl_addrmodule(session, address)
    local name = module ~= nil and dw.dwfl_module_addrname(module, address) or nil
    if name == nil then return nil end
    local present = build_id_of(ffi, dw, module)
    if build_id and present and build_id ~= present then return nil end
    local linked = ffi.string(name)
    local found = { name = demangle(linked) }
    if found.name ~= linked then found.system_name = linked end
    found.file, found.line = source_of(ffi, dw, module, address)
    return found
  end
end

-- Gives the mappings of the process to libdw. Returns whether that could be done.
local function report(ffi, dw, session, pid, maps)
  if not maps then return dw.dwfl_linux_proc_report(session, pid) == 0 end
  local bytes = ffi.new("char[?]", #maps + 1, maps)
  local file = ffi.C.fmemopen(bytes, #maps, "r")
  if file == nil then return false end
  local failed = dw.dwfl_linux_proc_maps_report(session, file)
  ffi.C.fclose(file)
  return failed == 0
end

-- Opens the symbols of a process. Returns nil and a few words if that cannot be done.
---@param pid integer
---@param maps string|nil the text that /proc/PID/maps had, if the process has ended
---@return loam.Symbols|nil
---@return string|nil words
function symbols.open(pid, maps)
  local ok, ffi = pcall(require, "ffi")
  local dw = ok and load(ffi, "libdw.so.1")
  if not dw then return nil, "elfutils' libdw is not installed" end
  pcall(ffi.cdef, DECLARATIONS) -- fails if this module was loaded before, with equal declarations
  local callbacks = ffi.new("loam_dwfl_callbacks")
  callbacks.find_elf = ffi.cast("void *", dw.dwfl_linux_proc_find_elf)
  callbacks.find_debuginfo = ffi.cast("void *", dw.dwfl_standard_find_debuginfo)
  local session = dw.dwfl_begin(callbacks)
  if session == nil then return nil, "libdw refuses to begin" end
  if not report(ffi, dw, session, pid, maps) then
    dw.dwfl_end(session)
    return nil, "libdw cannot read the mappings of the process"
  end
  dw.dwfl_report_end(session, nil, nil)
  local find = find_by(ffi, dw, session, demangler(ffi))
  -- libdw has the address of the callbacks, so they must not be collected before the end.
  return { find = find, callbacks = callbacks, close = function() dw.dwfl_end(session) end }
end

return symbols
