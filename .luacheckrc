-- What luacheck may take for granted, by the kind of Lua that a file is.
std = "luajit"
max_line_length = 100
-- tests/policies are broken on purpose; policies/editor declares what others may read.
exclude_files = { "build*", "tests/policies", "policies/editor" }
files["tests/lua"] = { std = "+busted" }
files["tests/bindings"] = { std = "+busted" }

-- A policy sees one global beside a safe subset of Lua; `loam check` says more.
local policy = { unused_args = false, read_globals = { "loam" }, not_globals = {
  "io", "os", "debug", "package", "require", "jit", "coroutine", "pcall", "xpcall", "setmetatable",
  "getmetatable", "load", "loadstring", "loadfile", "dofile", "collectgarbage", "newproxy",
  "rawset", "rawget", "rawequal", "getfenv", "setfenv", "module", "print" } }
files["policies"] = policy
files["examples"] = policy
files["tests/manuals/scene"] = policy
files["tests/bench/eight_leaves.lua"] = policy
files["tests/long"] = policy
