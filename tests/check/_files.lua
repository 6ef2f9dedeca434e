-- _files.lua - functions that the checks share: they read the tree and collect complaints.
local files = {}

function files.read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

-- Returns the output of a shell command as a list of lines. Raises an error if the command fails.
function files.lines_of(command)
  local pipe = assert(io.popen(command .. "; echo status=$?"))
  local lines = {}
  for line in pipe:lines() do lines[#lines + 1] = line end
  pipe:close()
  local status = table.remove(lines)
  if status ~= "status=0" then
    error(("%s: %s\n%s"):format(command, status, table.concat(lines, "\n")), 0)
  end
  return lines
end

-- Returns the paths below these folders that have one of these endings ("c h").
function files.find(folders, endings)
  local names = {}
  for ending in endings:gmatch("%S+") do names[#names + 1] = ("-name '*.%s'"):format(ending) end
  return files.lines_of(("find %s -type f \\( %s \\) | sort"):format(folders,
    table.concat(names, " -o ")))
end

-- Calls visit(line, number) for each line of a file.
function files.each_line(path, visit)
  local number = 0
  for line in (files.read(path):gsub("\n$", "") .. "\n"):gmatch("(.-)\n") do
    number = number + 1
    visit(line, number)
  end
end

local complaints = 0

function files.complain(where, ...)
  complaints = complaints + 1
  io.stdout:write(where, ": ", string.format(...), "\n")
end

-- Ends the program. Prints `what` and exits with 0 if there are no complaints, else with 1.
function files.finish(what)
  io.stdout:write(complaints == 0 and what or complaints .. " complaints", "\n")
  os.exit(complaints == 0 and 0 or 1)
end

return files
