-- doctor - what this machine offers to policies, and what to do about what it does not.

local json = require("loam.json")
local terminal = require("loam.cli.terminal")
local units = require("loam.cli.units")

local doctor = {
  summary = "tells what this machine offers to policies",
  usage = "[--json]",
  about = [[
NUMA nodes, huge pages, limits, kernel features, devices: what each is for in a policy, and
how to get what is not there. Nothing is changed.]],
  options = { { "json", nil, "the machine as a JSON object" } },
  example = [[
  $ loam doctor
  ok    NUMA nodes              0 (15.4 GiB, 9.2 GiB free), 1 (15.5 GiB, 14 GiB free)
  ok    transparent huge pages  madvise: huge = "thp" asks for them
  none  2 MiB huge pages        none reserved
                                `sysctl vm.nr_hugepages=N` reserves N of them
]],
}

-- Each finds one thing out: a mark, a value, and what may be done.
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
  return "ok", nodes_text(machine.nodes), "one node: numa options are taken and make no difference"
end

-- What follows where a call that places memory is refused.
local EPERM, ENOSYS = 1, 38

local function refusal(number)
  if number == EPERM then return "is refused here (EPERM), as by a container's seccomp filter" end
  if number == ENOSYS then return "is not in this kernel (ENOSYS)" end
  return ("fails with error %d"):format(number)
end

function examine.placing(machine)
  local placing = machine.placing
  if not placing or not placing.mbind then return "warn", "not tried: no memory" end
  local one = #machine.nodes < 2
  if placing.mbind ~= 0 then
    if one then return "ok", "mbind " .. refusal(placing.mbind) .. "; one node needs none" end
    return "warn", "mbind " .. refusal(placing.mbind) .. ": only numa = \"local\" is served",
      "others are for their or_else; in a container `--cap-add SYS_NICE` allows it"
  end
  if placing.move_pages ~= 0 then
    return "warn", "move_pages " .. refusal(placing.move_pages),
      "memory is placed, but where it is cannot be told, nor moved by `loam rebalance`"
  end
  if placing.prefault == EPERM then
    return "warn", "madvise " .. refusal(EPERM) .. ": prefault = true is for its or_else",
      "of numa = N it is known only about when a node is full"
  end
  if placing.prefault ~= 0 then
    return "warn", "MADV_POPULATE_WRITE fails: prefault = true is for its or_else",
      "with Linux 5.14 it works, and numa = N knows beforehand that a node is full"
  end
  return "ok", "mbind and move_pages are allowed: numa is applied and can be verified"
end

-- Whether a cpuset leaves less than all nodes with memory.
local function is_confined(machine)
  local all = (machine.placing or {}).has_memory
  return all and all ~= machine.nodes_text
end

function examine.cpuset(machine)
  local all = (machine.placing or {}).has_memory
  if not is_confined(machine) then return "ok", "all nodes with memory may be used" end
  return "warn", ("nodes %s of %s may be used; a policy that names others is refused"):format(
    machine.nodes_text, all), "cpuset.mems of the control group, or numactl, says so"
end

function examine.weights(machine)
  if #machine.nodes < 2 then return "ok", "one node" end
  if (machine.placing or {}).weighted then
    return "ok", "page by page where the machine's weights are in the same proportions, "
      .. "else by 64 KiB", "/sys/kernel/mm/mempolicy/weighted_interleave/nodeN sets the machine's"
  end
  return "ok", "by pieces of 64 KiB or more; since Linux 6.9 page by page"
end

function examine.group(machine)
  local group = machine.group
  if not group then return "ok", "no limit" end
  return "warn", ("%s, %s left: what is touched beyond it ends the process"):format(
    units.bytes(group.limit), units.bytes(group.left)),
    "prefault = true, lock = true and numa = N find out beforehand; limit = N keeps below"
end

local THP = {
  always = { "ok", "always: large blocks get them unless huge = false" },
  madvise = { "ok", "madvise: huge = \"thp\" asks for them" },
  never = { "none", "never: huge = \"thp\" has no effect",
            "`echo madvise > /sys/kernel/mm/transparent_hugepage/enabled` allows them" },
}

-- The errno of a call that was tried, if it is refused.
local function refused(machine, call)
  local number = (machine.placing or {})[call]
  return number and number ~= 0 and number or nil
end

function examine.thp(machine)
  local known, number = THP[machine.thp], refused(machine, "huge")
  if number and known and machine.thp ~= "never" then
    return "warn", "madvise " .. refusal(number) .. ": huge = \"thp\" has no effect"
  end
  if known then return unpack(known) end
  return "none", "this kernel has none"
end

local FREE_OF = { ["2MiB"] = "huge_free", ["1GiB"] = "giant_free" }

-- A cpuset may leave out nodes that have some.
local function by_node(machine, size, all)
  local out, left = {}, all
  if #machine.nodes < 2 and not is_confined(machine) then return "" end
  for i, node in ipairs(machine.nodes) do
    local free = node[FREE_OF[size]] or 0
    out[i], left = ("%d on node %d"):format(free, node.node), left - free
  end
  if not is_confined(machine) then left = 0 end -- they come and go while they are counted
  if left > 0 then out[#out + 1] = left .. " on nodes that may not be used" end
  return ": " .. table.concat(out, ", ")
end

-- Reserved pages of one size; `setting` is how more are made.
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
    return "warn", "mlock " .. refusal(number) .. ": lock = true is for its or_else"
  end
  if not limit then return "ok", "no limit to what lock = true may lock" end
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
  if not number then return "ok", "what is free goes back within about a second" end
  return "warn", "madvise " .. refusal(number) .. ": what is free stays with the process"
end

function examine.maps(machine)
  if not machine.max_map_count then return "warn", "/proc/sys/vm cannot be read" end
  return "ok", units.count(machine.max_map_count) .. " at most; a guarded block takes two",
    machine.max_map_count < 2 ^ 18 and "`sysctl vm.max_map_count=N` raises it" or nil
end

local OVERCOMMIT = {
  [0] = { "ok", "0: the kernel judges by size" },
  [1] = { "ok", "1: always granted" },
  [2] = { "warn", "2: loam's reserved range may count against the limit",
          "vm.overcommit_memory 0 or 1 serves loam better" },
}

function examine.overcommit(machine)
  return unpack(OVERCOMMIT[machine.overcommit] or { "warn", "/proc/sys/vm cannot be read" })
end

-- The kernel's setting for huge pages in files of memory, which none of its others touches.
function examine.shared(machine)
  if machine.memfd ~= true then return "none", "none: loam.shared needs an or_else" end
  local huge = machine.thp_shared
  if huge == nil or huge == "" or huge == "never" or huge == "deny" then
    return "ok", "loam.shared, on small pages: huge = \"thp\" has no effect there",
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
  if machine.membarrier then return "ok", "plans of old generations are freed at once" end
  return "warn", "not offered: plans of old generations are kept until the process ends"
end

function examine.rseq(machine)
  if machine.rseq then return "ok", "a thread's node is read from its own memory" end
  return "ok", "not registered: a thread's node comes from getcpu"
end

function examine.luajit(machine)
  if machine.luajit then return "ok", "found" end
  return "warn", "not found: no policy can be loaded", "install libluajit-5.1-2"
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

-- No library at all is as most machines are; one that does not serve is a fault.
function examine.cuda(machine)
  local cuda = machine.cuda or {}
  if not cuda.present then
    return cuda.driver and "warn" or "none", "none: pinned, device and managed need an or_else",
      cuda.reason
  end
  local devices = {}
  for i, device in ipairs(cuda.devices or {}) do devices[i] = device_text(device) end
  return "ok", table.concat(devices, ", "), is_older(cuda.driver, cuda.toolkit)
    and ("the driver is of CUDA %s, the toolkit that loam was built with of %s: it serves")
      :format(cuda.driver, cuda.toolkit) or nil
end

-- What is examined, in this order, under which name.
local LIST = {
  { "kernel", "kernel" }, { "nodes", "NUMA nodes" }, { "cpuset", "cpuset" },
  { "placing", "placing of memory" }, { "weights", "weights of nodes" },
  { "group", "control group" }, { "thp", "transparent huge pages" },
  { "two_mib", "2 MiB huge pages" }, { "one_gib", "1 GiB huge pages" },
  { "memlock", "locked memory" }, { "giving", "free memory" },
  { "address_space", "address space" }, { "maps", "mappings" },
  { "overcommit", "overcommit" }, { "shared", "shared memory" }, { "file", "files as memory" },
  { "membarrier", "membarrier" }, { "rseq", "rseq" }, { "luajit", "LuaJIT" },
  { "cuda", "CUDA" },
}

local COLOUR = { ok = "green", none = "dim", warn = "yellow" }

local function show(world, machine)
  local indent = (" "):rep(30)
  for _, entry in ipairs(LIST) do
    local mark, value, advice = examine[entry[1]](machine)
    local painted = world.paint(COLOUR[mark], ("%-4s"):format(mark))
    world.write(("%s  %-22s  %s\n"):format(painted, entry[2], terminal.plain(value)))
    if advice then world.write(indent .. terminal.plain(advice) .. "\n") end
  end
end

function doctor.run(world, given)
  local text, words = world.api.machine()
  if not text then world.fail(words) end
  if given.json then
    world.write((text:gsub("\n+$", "")) .. "\n")
    return 0
  end
  local machine, message = json.decode(text)
  show(world, machine or world.fail("the engine's answer is " .. message))
  return 0
end

return doctor
