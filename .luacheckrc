-- What luacheck may take for granted, by the kind of Lua that a file is.
std = "luajit"
max_line_length = 100
files["tests/lua"] = { std = "+busted" }

-- A policy sees one global beside a safe subset of Lua; `loam check` says more.
files["policies"] = { std = "luajit", unused_args = false, read_globals = { "loam" }, not_globals = {
  "io", "os", "debug", "package", "require", "ffi", "jit", "coroutine", "pcall", "xpcall",
  "setmetatable", "getmetatable", "load", "loadstring", "loadfile", "dofile", "collectgarbage",
  "newproxy", "rawset", "rawget", "rawequal", "getfenv", "setfenv", "module", "print" } }
