-- manifest.lua - finds the policy in a manifest of Kubernetes: the text of a ConfigMap, under a key
-- that ends in .lua, as a literal block of YAML:
--
--   kind: ConfigMap
--   data:
--     prod.lua: |
--       local plain = loam.host { name = "plain" }
--
-- That is the form in which people write policies into manifests, and in which `kubectl create
-- configmap --from-file` prints them. YAML's other forms of a text are refused with their line.

local manifest = {
  MOST = 8 * 2 ^ 20, -- bytes of a manifest; Kubernetes itself takes 1 MiB of a ConfigMap
}

-- Returns whether the path names a manifest, by its ending.
function manifest.is_one(path)
  return path:match("%.ya?ml$") ~= nil
end

local function indent_of(line)
  return #line:match("^ *")
end

local function lines_of(text)
  local lines = {}
  for line in (text:gsub("\r\n", "\n") .. "\n"):gmatch("(.-)\n") do lines[#lines + 1] = line end
  if lines[#lines] == "" then lines[#lines] = nil end
  return lines
end

-- Returns the name of a key that ends in .lua, and the text behind its colon.
local function key_of(line)
  local name, rest = line:match("^ +[\"']?([%w._-]+%.lua)[\"']?:%s*(.-)%s*$")
  return name, rest
end

-- Returns the last line of the block whose key is at line `at`, and the indentation of its lines:
-- that of the first one that is not empty. A line that is indented less, such as a comment of YAML,
-- ends the block.
local function block_end(lines, at)
  local outer, inner, last = indent_of(lines[at]), nil, at
  for i = at + 1, #lines do
    local indent = not lines[i]:match("^%s*$") and indent_of(lines[i])
    if indent and indent < (inner or outer + 1) then break end
    inner = inner or indent or nil
    if indent then last = i end
  end
  return last, inner or 0
end

-- Finds the keys that hold policies.
---@return table[]|nil found each with its `name`, and the lines `first` and `last` of its block
---@return string|nil words if a key is in another form; they begin with the number of its line
local function find(lines)
  local found, i = {}, 1
  while i <= #lines do
    local name, rest = key_of(lines[i])
    if name then
      if not rest:match("^|[-+]?$") and not rest:match("^|[-+]?%s+#") then
        return nil, ("%d: file: '%s' is no literal block: write `%s: |`, and the policy below it, "
          .. "indented"):format(i, name, name)
      elseif rest:sub(2, 2) == "-" then
        return nil, ("%d: file: '%s: |-' cuts the last newline off, and programs refuse such a "
          .. "policy as cut off: write `%s: |`"):format(i, name, name)
      end
      local last, inner = block_end(lines, i)
      if (lines[last + 1] or ""):find("^ *\t *%S") then
        return nil, ("%d: file: a tab is not indentation in YAML: write blanks"):format(last + 1)
      end
      found[#found + 1] = {
        name = name, first = i + 1, last = last, inner = inner, ending = rest:sub(2, 2),
      }
      i = last
    end
    i = i + 1
  end
  return found
end

-- Returns the number of line ends that the text of a block has behind its last line: one for `|`;
-- for `|+`, one more for each empty line that follows.
local function ends_of(lines, block)
  if block.last < block.first then return 0 end
  local ends = 1
  while block.ending == "+" and (lines[block.last + ends] or "x"):match("^%s*$") do
    ends = ends + 1
  end
  return ends
end

-- Returns the text of the policy in a manifest, twice. In the first text each line has the number
-- that it has in the manifest, because the lines before the policy are empty. The second text is
-- the exact text, which the file has where the ConfigMap is mounted.
---@return string|nil text
---@return string|nil exact; if there is no text, words that say why, which may begin with the
---   number of a line
function manifest.policy(text)
  local lines = lines_of(text)
  if not ("\n" .. text):match("\nkind:%s*[\"']?ConfigMap") then
    return nil, "file: it has no ConfigMap (a line `kind: ConfigMap`)"
  end
  local found, words = find(lines)
  if not found then return nil, words end
  if #found == 0 then return nil, "file: its ConfigMap has no key that ends in .lua" end
  if #found > 1 then
    return nil, ("%d: file: it has %d policies, '%s' and '%s'; put each into a manifest of its own")
      :format(found[2].first - 1, #found, found[1].name, found[2].name)
  end
  local block, out = found[1], {}
  for i = 1, block.last do
    out[i] = i >= block.first and lines[i]:sub(block.inner + 1) or ""
  end
  if block.last == #lines and block.first <= #lines and text:sub(-1) ~= "\n" then
    return nil, ("%d: file: the last line has no newline, so the policy has none either, and "
      .. "programs refuse it as cut off: end the last line with a newline"):format(block.last)
  end
  local exact = table.concat(out, "\n", block.first) .. ("\n"):rep(ends_of(lines, block))
  return table.concat(out, "\n") .. "\n", exact
end

-- Reads the policy in the file of a manifest.
---@return string|nil text the first text of manifest.policy
---@return string|nil exact the second text of manifest.policy; if there is no text, why
---@return number|nil line of the manifest where the fault is, if it is at a line
function manifest.read(context, path)
  local bytes, why = context.posix.read(path, manifest.MOST)
  if not bytes then return nil, (why:gsub("^.-: ", "")) end
  local text, exact = manifest.policy(bytes)
  if text then return text, exact end
  local line, reason = exact:match("^(%d+): file: (.*)")
  return nil, reason or exact:match("^file: (.*)"), tonumber(line)
end

-- Fails if the path is a manifest's: programs read a policy from its mounted ConfigMap.
function manifest.refuse(context, path)
  if not manifest.is_one(path) then return end
  context.fail(path .. ": it is a manifest; mount its ConfigMap as a folder, and name the policy "
    .. "in that folder")
end

return manifest
