-- doctor.lua - shows what this machine offers to policies, and how to get more.

local json = require("loam.report.json")
local terminal = require("loam.command.terminal")
local units = require("loam.command.units")

local doctor = {
  summary = "shows what this machine offers to policies",
  usage = "[--json]",
  about = [[
Lists NUMA nodes, huge pages, limits, kernel features and devices: what a
policy can do with each, and how to get those that are missing. It changes
nothing. Marks: ok; warn, something does not work as a policy may expect; none,
the machine does not have it.]],
  options = { { "json", nil, "the machine as a JSON object" } },
  example = [[
  $ loam doctor
  ok    NUMA nodes              0 (16 GiB, 9 GiB free), 1 (16 GiB, 14 GiB free)
  ok    transparent huge pages  madvise: huge = "thp" asks for them
  none  2 MiB huge pages        none reserved
                                `sysctl vm.nr_hugepages=N` reserves N of them
]],
}

-- Each function examines one thing. It returns a mark, a value, and advice or nil.
local examine = {}

function examine.kernel(machine)
  return "ok", ("%s on %s, %s, pages of %s"):format(machine.kernel, machine.architecture,
    units.plural(machine.cpus, "CPU"), units.bytes(machine.page))
end

local function nodes_text(nodes)
  local out = {}
  for i, node in ipairs(nodes) do
    out[i] = ("%d (%s, %s free)"):format(node.node, units.bytes(node.total), units.bytes(node.free))
  end
  return table.concat(out, ", ")
end

function examine.nodes(machine)
  if #machine.nodes > 1 then return "ok", nodes_text(machine.nodes) end
  return "ok", nodes_text(machine.nodes),
    "with one node, numa options are accepted and change nothing"
end

-- Returns in words why a call failed, after the name of the call.
local EPERM, ENOSYS = 1, 38

local function refusal(number)
  if number == EPERM then return "is refused here (EPERM), as by a container's seccomp filter" end
  if number == ENOSYS then return "is not in this kernel (ENOSYS)" end
  return ("fails with error %d"):format(number)
end

function examine.placing(machine)
  local placing = machine.placing
  if not placing or not placing.mbind then return "warn", "not tested: no memory for the test" end
  local one = #machine.nodes < 2
  if placing.mbind ~= 0 then
    if one then
      return "ok", "mbind " .. refusal(placing.mbind) .. "; with one node that changes nothing"
    end
    return "warn", "mbind " .. refusal(placing.mbind) .. ": only numa = \"local\" is served",
      "other strategies use their or_else; in a container, `--cap-add SYS_NICE` allows mbind"
  end
  if placing.move_pages ~= 0 then
    return "warn", "move_pages " .. refusal(placing.move_pages),
      "memory is placed, but loam cannot see where it is, and `loam rebalance` cannot move it"
  end
  if placing.prefault == EPERM then
    return "warn",
      "madvise " .. refusal(EPERM) .. ": strategies with prefault = true use their or_else",
      "for numa = N, loam knows only roughly when a node is full"
  end
  if placing.prefault ~= 0 then
    return "warn", "MADV_POPULATE_WRITE fails: strategies with prefault = true use their or_else",
      "it needs Linux 5.14; then numa = N also finds out beforehand that a node is full"
  end
  return "ok", "mbind and move_pages are allowed: numa is applied and can be verified"
end

-- Returns true if a cpuset allows less than all nodes with memory.
local function is_confined(machine)
  local all = (machine.placing or {}).has_memory
  return all and all ~= machine.nodes_text
end

function examine.cpuset(machine)
  local all = (machine.placing or {}).has_memory
  if not is_confined(machine) then return "ok", "all nodes with memory may be used" end
  return "warn", ("nodes %s of %s may be used; a policy that names others is refused"):format(
    machine.nodes_text, all), "cpuset.mems of the control group sets this; numactl does not"
end

function examine.weights(machine)
  if #machine.nodes < 2 then return "ok", "one node" end
  if (machine.placing or {}).weighted then
    return "ok", "page by page if the machine's weights have the proportions of the strategy, "
      .. "else in pieces of 64 KiB",
      "/sys/kernel/mm/mempolicy/weighted_interleave/nodeN sets the machine's weights"
  end
  return "ok", "in pieces of 64 KiB or more; page by page needs Linux 6.9"
end

function examine.group(machine)
  local group = machine.group
  if not group then return "ok", "no limit" end
  return "warn", ("%s, %s left: a process that touches more is killed"):format(
    units.bytes(group.limit), units.bytes(group.left)),
    "prefault = true, lock = true and numa = N find this out beforehand; limit = N avoids it"
end

function examine.pressure(machine)
  local pressure = machine.pressure or {}
  local room = pressure.limit and (", and %s of %s left"):format(units.bytes(pressure.left),
    units.bytes(pressure.limit)) or ""
  if pressure.stalled then
    return "ok", ("%d %% of the last ten seconds were waits for memory%s"):format(pressure.stalled,
      room)
  end
  return "none", "this kernel does not count waits for memory: loam.pressure() is 0" .. room,
    "`psi=1` on the kernel's command line counts them"
end

local THP = {
  always = { "ok", "always: large blocks get them unless huge = false" },
  madvise = { "ok", "madvise: huge = \"thp\" asks for them" },
  never = { "none", "never: huge = \"thp\" has no effect",
            "`echo madvise > /sys/kernel/mm/transparent_hugepage/enabled` allows them" },
}

-- Returns the errno of a call that was tried and refused, else nil.
local function refused(machine, call)
  local number = (machine.placing or {})[call]
  return number and number ~= 0 and number or nil
end

function examine.thp(machine)
  local known, number = THP[machine.thp], refused(machine, "huge")
  if machine.thp_disabled and known and machine.thp ~= "never" then
    return "none", "prctl(PR_SET_THP_DISABLE) switches them off here: huge = \"thp\" has no effect",
      "a program has this switch from the program that started it"
  end
  if number and known and machine.thp ~= "never" then
    return "warn", "madvise " .. refusal(number) .. ": huge = \"thp\" has no effect"
  end
  if known then return unpack(known) end
  return "none", "this kernel has none"
end

local FREE_OF = { ["2MiB"] = "huge_free", ["1GiB"] = "giant_free" }

-- Returns the free huge pages by node. A cpuset may forbid nodes that have some of them.
local function by_node(machine, size, all)
  local out, left = {}, all
  if #machine.nodes < 2 and not is_confined(machine) then return "" end
  for i, node in ipairs(machine.nodes) do
    local free = node[FREE_OF[size]] or 0
    out[i], left = ("%d on node %d"):format(free, node.node), left - free
  end
  if not is_confined(machine) then left = 0 end -- pages may be taken while they are counted
  if left > 0 then out[#out + 1] = left .. " on nodes that may not be used" end
  return ": " .. table.concat(out, ", ")
end

-- Examines the reserved pages of one size. `setting` is the advice to reserve more.
local function reserved(machine, size, setting)
  local pool = machine.hugepages[size]
  if not pool then return "none", "this kernel has none of this size" end
  if pool.total > 0 then
    return "ok", ("%d reserved, %d free"):format(pool.total, pool.free)
      .. by_node(machine, size, pool.free)
  end
  return "none", "none reserved", setting
end

function examine.two_mib(machine)
  return reserved(machine, "2MiB", "`sysctl vm.nr_hugepages=N` reserves N of them")
end

function examine.one_gib(machine)
  return reserved(machine, "1GiB",
    "`hugepagesz=1G hugepages=N` on the kernel's command line reserves N of them")
end

function examine.memlock(machine)
  local limit, number = machine.memlock, refused(machine, "lock")
  if number and (not limit or limit >= machine.page) then
    return "warn", "mlock " .. refusal(number) .. ": strategies with lock = true use their or_else"
  end
  if not limit then return "ok", "no limit for lock = true" end
  if limit >= 2 ^ 20 then return "ok", units.bytes(limit) .. " may be locked by lock = true" end
  return "warn", "only " .. units.bytes(limit) .. " may be locked", "`ulimit -l` raises it"
end

function examine.address_space(machine)
  local limit = machine.address_space
  if not limit then return "ok", "no limit" end
  if limit > 2 * machine.range then return "ok", units.bytes(limit) end
  return "warn", ("at most %s; loam reserves %s of it"):format(units.bytes(limit),
    units.bytes(machine.range)), "`ulimit -v unlimited` lifts it"
end

function examine.giving(machine)
  local number = refused(machine, "give_back")
  if not number then return "ok", "goes back to the kernel within about a second" end
  return "warn", "madvise " .. refusal(number) .. ": free memory stays with the process"
end

function examine.maps(machine)
  if not machine.max_map_count then return "warn", "/proc/sys/vm cannot be read" end
  return "ok", units.count(machine.max_map_count) .. " at most; a guarded block takes two",
    machine.max_map_count < 2 ^ 18 and "`sysctl vm.max_map_count=N` raises it" or nil
end

local OVERCOMMIT = {
  [0] = { "ok", "0: the kernel judges by size" },
  [1] = { "ok", "1: always granted" },
  [2] = { "ok", "2: the range that loam reserves does not count",
          "a program under loam counts about 20 MiB more, and 192 KiB for each thread" },
}

function examine.overcommit(machine)
  return unpack(OVERCOMMIT[machine.overcommit] or { "warn", "/proc/sys/vm cannot be read" })
end

-- Shared memory is a file in memory, for whose huge pages the kernel has a setting of its own.
function examine.shared(machine)
  if machine.memfd ~= true then return "none", "none: loam.shared needs an or_else" end
  local huge = machine.thp_shared
  if huge == nil or huge == "" or huge == "never" or huge == "deny" then
    return "ok", "loam.shared, on small pages: huge = \"thp\" has no effect on it",
      "`echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled` allows huge ones"
  end
  return "ok", "loam.shared, with huge = \"thp\" where a policy says so"
end

function examine.file(machine)
  local file = machine.file or {}
  if not file.type then return "none", (file.dir or "/var/tmp") .. ": " .. (file.reason or "?") end
  local value = ("%s on %s, %s free"):format(file.dir, file.type, units.bytes(file.free))
  if not file.reason then return "ok", value .. ": loam.file" end
  return "none", value, "not for loam.file: " .. file.reason
end

function examine.membarrier(machine)
  if machine.membarrier then return "ok", "plans of old generations are freed immediately" end
  return "warn", "not offered: plans of old generations stay until the process ends"
end

function examine.rseq(machine)
  if machine.rseq then return "ok", "a thread's node is read from its own memory" end
  return "ok", "not registered: a thread's node comes from getcpu"
end

function examine.luajit(machine)
  if machine.luajit then return "ok", "found" end
  return "warn", "not found: no policy can be loaded", "install libluajit-5.1-2"
end

function examine.libnuma(machine)
  if machine.libnuma then return "ok", 'found: policies may name nodes as "0-3" or "all"' end
  return "none", 'not found: a policy that names nodes as "0-3" or "all" is refused',
    "install libnuma1; numbers of nodes work without it"
end

local function device_text(device)
  local free = device.free and units.bytes(device.free) .. " free" or device.reason
  local node = device.node and device.node >= 0 and ", node " .. device.node or ""
  return ("%d %s (%s, %s%s)"):format(device.device, device.name or "unknown",
    units.bytes(device.total or 0), free, node)
end

local function is_older(driver, toolkit)
  local function number(version)
    local major, minor = version:match("(%d+)%.(%d+)")
    return major and tonumber(major) * 100 + tonumber(minor) or 0
  end
  return driver and toolkit and number(driver) < number(toolkit)
end

-- Most machines have no driver library, which is no fault; a library that does not work is one.
function examine.cuda(machine)
  local cuda = machine.cuda or {}
  if not cuda.present then
    return cuda.driver and "warn" or "none", "none: pinned, device and managed need an or_else",
      cuda.reason
  end
  local devices = {}
  for i, device in ipairs(cuda.devices or {}) do devices[i] = device_text(device) end
  return "ok", table.concat(devices, ", "), is_older(cuda.driver, cuda.toolkit)
    and ("the driver is of CUDA %s, older than the toolkit of loam's build (%s); it works")
      :format(cuda.driver, cuda.toolkit) or nil
end

-- The functions of `examine` in the order of the output, each with the name that is shown.
local LIST = {
  { "kernel", "kernel" }, { "nodes", "NUMA nodes" }, { "cpuset", "cpuset" },
  { "placing", "placing of memory" }, { "weights", "weights of nodes" },
  { "group", "control group" }, { "pressure", "memory pressure" },
  { "thp", "transparent huge pages" },
  { "two_mib", "2 MiB huge pages" }, { "one_gib", "1 GiB huge pages" },
  { "memlock", "locked memory" }, { "giving", "free memory" },
  { "address_space", "address space" }, { "maps", "mappings" },
  { "overcommit", "overcommit" }, { "shared", "shared memory" }, { "file", "files as memory" },
  { "membarrier", "membarrier" }, { "rseq", "rseq" }, { "luajit", "LuaJIT" },
  { "libnuma", "libnuma" }, { "cuda", "CUDA" },
}

local COLOUR = { ok = "green", none = "dim", warn = "yellow" }

local function show(context, machine)
  local indent = (" "):rep(30)
  for _, entry in ipairs(LIST) do
    local mark, value, advice = examine[entry[1]](machine)
    local painted = context.paint(COLOUR[mark], ("%-4s"):format(mark))
    context.write(("%s  %-22s  %s\n"):format(painted, entry[2], terminal.plain(value)))
    if advice then context.write(indent .. terminal.plain(advice) .. "\n") end
  end
end

function doctor.run(context, given)
  local text, words = context.api.machine()
  if not text then context.fail(words) end
  if given.json then
    context.write((text:gsub("\n+$", "")) .. "\n")
    return 0
  end
  local machine, message = json.decode(text)
  show(context, machine or context.fail("the engine's answer is " .. message))
  return 0
end

return doctor
