-- tag.lua - questions about dotted names: `under`, `is`, `glob`, `part`.
--
-- A policy has these instead of Lua's patterns, some of which can take very long.

local frame = require("loam.report.frame")

local tag = {}

local byte, find, sub = string.byte, string.find, string.sub

local DOT, STAR, ANY = byte("."), byte("*"), byte("?")

---@return boolean whether `name` is `prefix` or a name below it; every name is under ""
function tag.under(name, prefix)
  if prefix == "" or name == prefix then return true end
  return byte(name, #prefix + 1) == DOT and sub(name, 1, #prefix) == prefix
end

function tag.is(name, other)
  return name == other
end

-- `*` matches any characters, dots too, and `?` matches one. After a mismatch only the last star is
-- tried again, one character further on, so the time is at most the product of the two lengths.
function tag.glob(name, pattern)
  local at, p, star, mark = 1, 1, nil, nil
  while at <= #name do
    local want = byte(pattern, p)
    if want == STAR then
      star, mark, p = p, at, p + 1
    elseif want == ANY or want == byte(name, at) then
      at, p = at + 1, p + 1
    elseif star then
      mark = mark + 1
      at, p = mark, star + 1
    else
      return false
    end
  end
  while byte(pattern, p) == STAR do p = p + 1 end
  return p > #pattern
end

---@return string|nil the part number `index`, from 1: part(2) of "a.b.c" is "b"; nil: no such part
function tag.part(name, index)
  if name == "" then return nil end
  local from = 1
  for _ = 2, index do
    local dot = find(name, ".", from, true)
    if not dot then return nil end
    from = dot + 1
  end
  return sub(name, from, (find(name, ".", from, true) or #name + 1) - 1)
end

local OF_FILE = "is true for no unmodified program: there a %s is %sFILE, where FILE is the name "
  .. "of a file up to its first dot"

-- Returns why a question about `name` is probably a mistake, and the name that was probably meant;
-- nil if it is none. In an unmodified program a tag is "malloc.FILE", and a module is FILE, where
-- FILE is the name of a file up to its first dot.
---@param field string "tag" or "module"
function tag.doubt(field, name)
  local short = string.match(name, "^(.+)%.$")
  if short then return "asks for a name that ends with a dot", short end
  local begin = field == "tag" and "malloc." or ""
  local is_library = find(name, "%.so$") or find(name, "%.so%.")
  local is_malloc = begin ~= "" and find(string.lower(name), "^malloc%.")
  if not is_library and not is_malloc then return nil end
  local file = is_malloc and sub(name, #begin + 1) or name
  local meant = begin .. string.match(string.match(file, "[^/]*$"), "^[^.]*")
  if meant == name or meant == begin then return nil end
  return string.format(OF_FILE, field, begin), meant
end

-- Checks the arguments of a tag method; returns the one that there may be, or refuses the policy.
function tag.argument(method, value, ...)
  if select("#", ...) > 0 then
    frame.refuse("type", ":" .. method .. " takes one string, not " .. 1 + select("#", ...),
      string.format("write req.tag:%s \"a\" or req.tag:%s \"b\"", method, method))
  end
  if type(value) == "string" then return value end
  return frame.refuse("type", ":" .. method .. " takes a string, not " .. type(value),
    "write req.tag:" .. method .. "\"tensor\", with a colon")
end

function tag.index(value)
  if type(value) == "number" and value >= 1 and value == math.floor(value) then return value end
  return frame.refuse("type", ":part takes a whole number from 1", "write req.tag:part(1)")
end

return tag
