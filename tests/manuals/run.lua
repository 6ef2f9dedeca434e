-- run.lua - runs the code blocks of one manual as a test: luajit run.lua MANUAL SCENE
--
-- run.sh calls it. The language of a block (kinds.lua) and the marks above it (blocks.lua) decide
-- how it runs. Prints a line for each block that differs from the manual, and for each block or
-- command that is not run, with the reason.
package.path = "tests/manuals/?.lua;tests/check/?.lua;lua/?.lua;" .. package.path
local blocks = require("blocks")
local files = require("_files")
local kinds = require("kinds")

local manual, scene = arg[1], arg[2]
local counts = { run = 0, skipped = 0 }

local function complain(block, text)
  files.complain(("%s:%d"):format(manual, block.at), "%s", text)
end

local function skip(block, reason)
  counts.skipped = counts.skipped + 1
  print(("%s:%d: not run: %s"):format(manual, block.at, reason))
end

-- Saves the blocks that later commands name: the first host of each language.
local function save_hosts(world)
  for _, file in ipairs { "README.md", "bindings/hosts.md" } do
    for _, block in ipairs(blocks.of(files.read(file))) do kinds.save_host(world, block) end
  end
end

local function mark_of(block, kind)
  for _, mark in ipairs(block.marks) do
    if mark.kind == kind then return mark end
  end
  return nil
end

local function run(world, block)
  local reason = mark_of(block, "not run:")
  if reason then return skip(block, reason.value) end
  local kind = kinds.of(block)
  if not kind then
    return complain(block, "neither a command, nor marked: see tests/manuals/blocks.lua")
  end
  counts.run = counts.run + 1
  local fault = kind(world, block)
  if fault then complain(block, fault) end
end

local world = { scene = scene, work = scene .. "/here", skip = skip, mark_of = mark_of }
save_hosts(world)
local list = blocks.of(files.read(manual))
world.blocks = list
for _, block in ipairs(list) do kinds.save_policy(world, block) end
for _, block in ipairs(list) do run(world, block) end
files.finish(("%d blocks of %s run, %d blocks or commands not run"):format(
  counts.run, manual, counts.skipped))
