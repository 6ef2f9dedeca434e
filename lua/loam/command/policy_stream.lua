-- policy_stream.lua - policies that a verb reads from standard input or from a pipe.
--
-- `-` is standard input. A shell gives a pipe a path: bash writes /dev/fd/63 for
-- <(git show HEAD:prod.lua), and zsh writes /proc/self/fd/11. A pipe that has a name (mkfifo) is
-- refused, as a folder is: a command that opens it may wait for ever. A verb may ask about a policy
-- several times, but a pipe can be read only once, so the verb keeps the text.

local policy_stream = {}

local IMAGE_START = "\127loamimg"
local MOST_TEXT = 2 ^ 20 -- bytes, as for files
policy_stream.MOST = 64 * 2 ^ 20 -- bytes of an image, as for files

-- Returns whether the bytes of a policy are an image (plan/policy_image.h).
function policy_stream.is_image(bytes)
  return bytes:sub(1, #IMAGE_START) == IMAGE_START
end

---@return string|nil text of the policy, or a policy image
---@return string|nil words why it cannot be read
local function read(context, path)
  local text, words = context.posix.read(path, policy_stream.MOST)
  if not text then return nil, (words:gsub("^.-: ", "")) end
  if #text > MOST_TEXT and not policy_stream.is_image(text) then
    return nil, ("has %d bytes, a policy has at most %d"):format(#text, MOST_TEXT)
  end
  return text
end

local function is_pipe(context, path)
  local is_descriptor = path:match("^/dev/") or path:match("^/proc/self/fd/")
  return is_descriptor and context.posix.is_stream(path)
end

-- Opens the policy that a verb was given.
---@param path string
---@return string|table policy the path; or, of a policy from standard input or a pipe, its name and
---  its text, or words that say why there is no text
function policy_stream.open(context, path)
  local is_input = path == "-"
  if not is_input and not is_pipe(context, path) then return path end
  local text, words = read(context, is_input and "/dev/stdin" or path)
  return { name = is_input and "stdin" or path, text = text, words = words }
end

-- Returns the name of an opened policy in messages.
function policy_stream.name(policy)
  return type(policy) == "table" and policy.name or policy
end

return policy_stream
