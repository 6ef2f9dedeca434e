-- embed.lua - turns files into text that the build can compile.
--
--   embed.lua modules OUT TABLE NAME=FILE...   compiles Lua modules, with their debug information,
--                                              into the lm_embedded_set TABLE; a FILE of another
--                                              type becomes a module that returns its text
--   embed.lua stripped OUT TABLE NAME=FILE...  like `modules`, without debug information: a policy
--                                              compiles a tenth faster, and a traceback of loam's
--                                              own code has no lines
--   embed.lua text OUT FILE                    makes a Lua module that returns the text of a file
--   embed.lua opcodes OUT                      makes the part of jit.vmdef that scan.lua reads

package.path = arg[0]:match("^(.*/)") .. "?.lua;" .. package.path
local bytecode = require("bytecode")

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

local function write(path, text)
  local file = assert(io.open(path, "wb"))
  assert(file:write(text))
  assert(file:close())
end

-- Returns a C initializer of these bytes. Decimal numbers are the shortest text for most bytes.
local function bytes_of(data)
  local lines = {}
  for i = 1, #data, 24 do
    lines[#lines + 1] = table.concat({ data:byte(i, i + 23) }, ",")
  end
  return table.concat(lines, ",\n")
end

-- Returns the Lua source of a module. A file of another type becomes a module that returns its
-- text.
local function source_of(path)
  if path:find("%.lua$") then return read(path) end
  return ("return %q\n"):format(read(path))
end

local function embed(is_stripped, output, name_of_table, ...)
  local codes, entries, at = {}, {}, 0
  for i, pair in ipairs { ... } do
    local name, path = pair:match("^([^=]+)=(.+)$")
    -- Messages and tracebacks show the module's name. A path would be a path of the build machine.
    local chunk = assert(loadstring(source_of(path), "=" .. name))
    local code = bytecode.sorted(string.dump(chunk, is_stripped))
    codes[i] = bytes_of(code)
    assert(#name < 48, name .. ": the name of a module has too many bytes (os/embed.h)")
    entries[i] = ('  { "%s", %d, %d },\n'):format(name, at, #code)
    at = at + #code
  end
  write(output, "/* " .. output:match("[^/]*$") .. " - Lua modules; made by cmake/embed.lua. */\n"
    .. '#include "os/embed.h"\n\n'
    .. "static const unsigned char code[] = {\n" .. table.concat(codes, ",\n") .. "\n};\n\n"
    .. "static const lm_embedded modules[] = {\n" .. table.concat(entries)
    .. "  { \"\", 0, 0 }\n};\n\n"
    .. "const lm_embedded_set " .. name_of_table .. " = { modules, code };\n")
end

local function text(output, path)
  write(output, ("return %q\n"):format(read(path)))
end

local function opcodes(output)
  write(output, ("return { bcnames = %q }\n"):format(require("jit.vmdef").bcnames))
end

local verbs = { text = text, opcodes = opcodes }
function verbs.modules(...) embed(false, ...) end
function verbs.stripped(...) embed(true, ...) end

local verb = verbs[arg[1]]
if not verb then
  io.stderr:write("usage: embed.lua modules|stripped OUT TABLE NAME=FILE... | text OUT FILE"
    .. " | opcodes OUT\n")
  os.exit(2)
end
verb(unpack(arg, 2))
