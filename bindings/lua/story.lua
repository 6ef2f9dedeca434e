-- story - the functions of a host in ten steps: examples/story.c in LuaJIT and in Lua 5.4.
local loam = require("loam")

local function say(...) print(string.format(...)) end

local plain = [[
local plain = loam.host { name = 'plain' }
return loam.policy { name = 'plain', pick = function(req) return plain end }
]]
local wrong = [[
local plain = loam.host { name = 'plain', align = 48 }
return loam.policy { name = 'wrong', pick = function(req) return plain end }
]]

local function tell_policy(step)
  local info = loam.policy.info()
  say("%s: generation %d, policy '%s'", step, info.generation, info.name)
end

local function tell_owner(step, p)
  local whose = loam.owner(p)
  if not whose then return say("%s: nobody's", step) end
  say("%s: tag '%s', strategy '%s', generation %d", step, whose.tag, whose.strategy,
    whose.generation)
end

local function tell_live(step)
  local live = { ["frame.pixels"] = 0, ["frame.title"] = 0 }
  for _, row in ipairs(loam.rows("tag")) do
    if live[row.tag] then live[row.tag] = row.live_blocks end
  end
  say("%s: pixels %d, titles %d", step, live["frame.pixels"], live["frame.title"])
end

local policy = arg[1] or "story.lua"
local file = not arg[2] and io.open(policy)
if not file then
  io.stderr:write("usage: ", arg[-1], " ", arg[0], " [POLICY]\n",
    "POLICY is examples/story.lua in the sources of loam; without it, story.lua\n")
  os.exit(2)
end
file:close()

assert(loam.start { policy = policy, control = -1 })
tell_policy("1 start")

local frame = assert(loam.malloc("frame.pixels", 64 * 1024))
local title = assert(loam.malloc("frame.title", 100))
tell_owner("2 a frame", frame)
tell_owner("2 its title", loam.at(title, 50))

local scoped = loam.within("frame.title", function() return assert(loam.malloc(nil, 10)) end)
tell_owner("3 in a scope", scoped)

title = assert(loam.realloc(nil, title, 8 * 1024))
tell_owner("4 a longer title", title)

say("5 refused: %s", loam.policy.load_text("wrong.lua", wrong) and "no" or "yes")
tell_policy("5 still")

assert(loam.policy.load_text("plain.lua", plain))
tell_policy("6 reload")
tell_owner("6 the frame", frame)
local later = assert(loam.malloc("frame.pixels", 64 * 1024))
tell_owner("6 another", later)

local block = assert(loam.block("frame.pixels", 1000))
local row = assert(block:slice(100, 10))
block:write("row one\0", 100)
say("7 a block of %d bytes, owners %d", block:size(), block:refcount())
block:release()
say("7 its slice of %d bytes: %s", row:size(), row:read():match("^%Z*"))
row:release()

local arena = assert(loam.arena("frame.title", { resizable = true }))
local first, second = assert(arena:alloc(4, 1)), assert(arena:alloc(4, 1))
loam.write(first, "one\0")
loam.write(second, "two\0")
first = assert(arena:resize(first, 1000))
say("8 an arena of %d bytes: %s, %s", arena:size(), loam.read(first, 3), loam.read(second, 3))

tell_live("9 live blocks")

arena:release()
for _, p in ipairs { frame, later, title, scoped } do loam.free(p) end
tell_owner("10 the frame", frame)
tell_live("10 live blocks")
