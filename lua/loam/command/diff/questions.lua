-- questions.lua - which sites a region is about: the questions about a site, with the answers that
-- tell the sites of the region from others.

local quoted = require("loam.report.lua_text").quoted
local site_search = require("loam.compiler.site_search")
local sites = require("loam.command.diff.sites")

local questions = {}

local MOST_KEYS = 4        -- of a table, in the words of a question
local MOST_NO = 4          -- questions with the answer no that are named
local MOST_ASKED = 64      -- of a region: questions with the answer no that are looked at
local MOST_SEARCHES = 4096 -- of a comparison

-- Says which keys of a table have the value that was found. Other keys have another value, so the
-- witness alone would not tell which strings a region is about.
local function words_of_keys(step)
  local words = sites.words_left(step)
  if #words == 1 then return ("%s == %s"):format(step[1].text, quoted(words[1])) end
  local list, more = {}, #words - MOST_KEYS
  for i = 1, math.min(#words, MOST_KEYS) do list[i] = quoted(words[i]) end
  return ("%s is one of %s%s"):format(step[1].text, table.concat(list, ", "),
    more > 0 and (" and %d more"):format(more) or "")
end

-- Returns the steps of a path whose answer is not no, and the questions of the others, as a list
-- and as a set.
---@param path table[] { question, answer }
function questions.split(path)
  local yes, no, is_no = {}, {}, {}
  for _, step in ipairs(path) do
    if step[2] == false then
      no[#no + 1] = step[1]
      is_no[step[1]] = true
    else
      yes[#yes + 1] = step
    end
  end
  return yes, no, is_no
end

local function words_of_yes(steps)
  local list, seen = {}, {}
  for _, step in ipairs(steps) do
    local words = step[2] == true and step[1].text or words_of_keys(step)
    if not seen[words] then list[#list + 1] = words end
    seen[words] = true
  end
  return list
end

local function is_about(steps, field)
  for _, step in ipairs(steps) do
    if step[1].field == field then return true end
  end
  return false
end

-- Returns whether a site with the answers of `steps` can answer a question with yes.
local function can_be_yes(steps, question, site)
  local path = {}
  for i, step in ipairs(steps) do path[i] = step end
  for _, answer in ipairs(site_search.answers(question)) do
    path[#steps + 1] = { question, answer }
    if answer and site_search.on(path, site) then return true end
  end
  return false
end

-- Returns whether a site of some class can answer a question with yes. A class that was not asked
-- may have sites with either answer.
local function is_yes_in(self, classes, question)
  for _, class in ipairs(classes) do
    if not class.is_no[question] then
      if question.ask(class.site) then return true end
      self.searches = self.searches + 1
      if self.searches > MOST_SEARCHES or can_be_yes(class.path, question, class.site) then
        return true
      end
    end
  end
  return false
end

local function words_of_no(question)
  if question.how == "key" then return question.text .. " is no key of its table" end
  local equal = question.how == "is" and question.text:match("^([%w.:()]+) == ")
  if equal then return equal .. " ~= " .. question.text:sub(#equal + 5) end
  return "not " .. question.text
end

-- Makes an object that finds the words of regions. It limits the searches of a comparison.
function questions.new() return { searches = 0 } end

-- Adds the words of questions with the answer no, if another answer is possible beside `steps`:
-- without them the words would be true for sites that are not in the region. Where no question
-- about the string has the answer yes, the region is called that of all others.
local function add_no(self, list, region)
  local steps, named, asked = region.yes, 0, 0
  for _, question in ipairs(region.no) do
    local is_no = is_about(steps, question.field)
      and not is_yes_in(self, region.classes, question)
    if self.searches > MOST_SEARCHES or is_no and (named == MOST_NO or asked == MOST_ASKED) then
      list[#list + 1] = "other questions have the answer no"
      return
    end
    if is_no then
      asked, self.searches = asked + 1, self.searches + 1
      if can_be_yes(steps, question, region.sites[1]) then
        named = named + 1
        list[#list + 1] = words_of_no(question)
      end
    end
  end
end

-- Lists questions that hold for all sites of a region, as a policy writes them. If the region may
-- have sites that are not known, those with the answer no are left out.
---@param region loam.Region
---@param is_partial boolean whether the region may have more sites
---@return string[]
function questions.words(self, region, is_partial)
  local list = words_of_yes(region.yes)
  if not is_partial then add_no(self, list, region) end
  return list
end

return questions
