-- driver.lua - what core calls: opens a policy, compiles it whole, runs the policy's tests, answers
-- questions about it.
--
-- Faults of a policy come back as one message that is complete and ready to print.
--
-- The folders of lua/loam, lowest first. A module requires modules of its own folder and of the
-- folders that its line names (tests/check/lua_layers.lua checks this).
--
--   report     diagnostics, their text and place; JSON.
--   symbolic   a request whose numbers are unknown while a policy is compiled. Uses report.
--   language   what a policy file may say, and what its functions may call. Uses report, symbolic.
--   compiler   from `pick` to checked plans. Uses report, symbolic, language.
--   questions  the answers of loam_policy_inspect. Uses report, symbolic, language, compiler.
--   command    the `loam` command; the libraries do not hold it. Uses report, symbolic, compiler.

local diag = require("loam.report.diag")
local policy = require("loam.compiler.policy")

local driver = {}

local file -- { name, text }
local name = ""
local apply = "new"

local function words(errors)
  return diag.render(errors, file.name, diag.lines(file.text))
end

-- Returns the two results of a function that refuses a policy. The first is false, and not nil, if
-- the policy is refused for what this machine or this process lacks.
---@return false|nil, string message
local function refused(errors)
  if errors[1] and errors[1].class == "machine" then return false, words(errors) end
  return nil, words(errors)
end

-- Loads and checks a policy, given as the text of its file.
---@return true|false|nil, string|nil message
function driver.open(file_name, text)
  file = { name = file_name, text = text }
  local made, errors = policy.open(file_name, text)
  if not made then return refused(errors) end
  name, apply = made.name, made.apply
  return true
end

---@return string the policy's name; "": it has none
function driver.name()
  return name
end

---@return string "new", or "live": a load also moves live memory
function driver.apply()
  return apply
end

-- Compiles the policy for every class of sites, and decides its invariants.
---@return string|false|nil, any[]|string the tree of class_tree.h and its plans; or as `refused`
function driver.classes()
  local errors = policy.compile_all()
  if #errors > 0 then return refused(errors) end
  return policy.tree()
end

-- Runs the policy's tests, after driver.classes.
---@return true|nil, string|nil message
function driver.vet()
  local errors = policy.vet()
  if #errors == 0 then return true end
  return nil, words(errors)
end

-- Answers a question about a policy that does not become live (loam_policy_inspect). Most hosts
-- never ask, so questions/inspect.lua is loaded only here.
---@return true|nil, string|nil message
function driver.inspect(file_name, text, query)
  return require("loam.questions.inspect").answer(file_name, text, query)
end

return driver
