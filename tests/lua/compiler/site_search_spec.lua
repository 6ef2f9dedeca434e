-- site_search_spec.lua - a site is found for a path of answers, with few questions.

require("support")
local site_search = require("loam.compiler.site_search")
local tag = require("loam.symbolic.tag")

describe("the search of a site", function()
  local asked

  -- Makes the question whether a tag is under `about`. `asked` counts how often it is asked.
  local function under(about)
    return { how = "under", field = "tag", about = about, ask = function(where)
      asked = asked + 1
      return tag.under(where.tag, about)
    end }
  end

  -- Returns a path with one yes, 200 times no, and a yes to `last`; and a site that gives all but
  -- the last answer.
  local function path_to(last)
    local path = { { under("cache"), true } }
    for i = 1, 200 do path[#path + 1] = { under("cache.c" .. i), false } end
    path[#path + 1] = { under(last), true }
    asked = 0
    return path, { tag = "cache", file = "", func = "", module = "" }
  end

  it("asks few questions where two answers exclude each other", function()
    assert.is_nil(site_search.on(path_to("log")))
    assert.is_true(asked < 10)
  end)

  it("finds a site that gives all answers, also no", function()
    local path, site = path_to("cache.pages")
    local found = site_search.on(path, site)
    assert.equal("cache.pages", found.tag)
    assert.is_nil(site_search.on(path_to("cache.c7.pages")))
  end)
end)
