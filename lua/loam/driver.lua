-- driver - what core calls: opens a policy, gives the plan of a site, vets, answers questions.
--
-- Whatever is wrong with a policy comes back as words, complete and ready to print.

local diag = require("loam.diag")
local policy = require("loam.policy")

local driver = {}

local file -- { name, text }
local name = ""
local apply = "new"

local function words(errors)
  return diag.render(errors, file.name, diag.lines(file.text))
end

-- Loads and checks a file, given as its text.
---@return true|nil, string|nil words
function driver.open(file_name, text)
  file = { name = file_name, text = text }
  local made, errors = policy.open(file_name, text)
  if not made then return nil, words(errors) end
  name, apply = made.name, made.apply
  return true
end

---@return string the policy's name, "" if it has none
function driver.name()
  return name
end

---@return string "new" or "live": whether live memory follows a load
function driver.apply()
  return apply
end

---@param where table tag, file, func, module (strings) and line
---@return any plan, boolean|string whether it is every site's; or nil and words
function driver.plan(where)
  local class = policy.class(where)
  if class.errors then return nil, words(class.errors) end
  return class.plan, class.is_only
end

-- Runs the policy's tests and compiles for every tag that its questions name; invariants are
-- decided with each plan that is made.
---@return true|nil, string|nil words
function driver.vet()
  local errors = policy.vet()
  if #errors == 0 then return true end
  return nil, words(errors)
end

-- Answers a question about a policy that is not made live (loam_policy_inspect). A host never asks
-- here, so the module is not loaded at its start.
---@return true|nil, string|nil words
function driver.inspect(file_name, text, query)
  return require("loam.inspect").answer(file_name, text, query)
end

return driver
