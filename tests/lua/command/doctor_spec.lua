-- doctor_spec.lua - the output of `loam doctor` for a machine that the engine describes.

local run = require("canned_context").run

describe("loam doctor", function()
  local MACHINE = {
    kernel = "6.1", architecture = "x86_64", cpus = 2, page = 4096, thp = "never", overcommit = 2,
    nodes = { { node = 0, total = 2 ^ 34, free = 2 ^ 33, distance = { 10 } } }, range = 2 ^ 40,
    hugepages = { ["2MiB"] = { total = 8, free = 3 } }, memlock = 65536, max_map_count = 65530,
    membarrier = true, rseq = false, luajit = true, libnuma = true, address_space = 2 ^ 30,
    cuda = { present = false, reason = "libcuda.so.1: no such file" },
    memfd = true, thp_shared = "never",
    file = { dir = "/var/tmp", type = "tmpfs", free = 2 ^ 30, reason = "it is in memory" },
  }

  it("says what there is, what there is not, and how to get it", function()
    local status, context = run("doctor", { machine = MACHINE })
    assert.equal(0, status)
    for _, line in ipairs {
      "ok    NUMA nodes              0 (16 GiB, 8 GiB free)\n",
      'none  transparent huge pages  never: huge = "thp" has no effect\n',
      "ok    2 MiB huge pages        8 reserved, 3 free\n",
      "none  1 GiB huge pages        this kernel has none of this size\n",
      "warn  locked memory           only 64 KiB may be locked\n",
      "warn  address space           at most 1 GiB; loam reserves 1 TiB of it\n",
      "ok    overcommit              2: the range that loam reserves does not count",
      "ok    shared memory           loam.shared, on small pages",
      "none  files as memory         /var/tmp on tmpfs, 1 GiB free\n",
      "not for loam.file: it is in memory\n",
      'ok    libnuma                 found: policies may name nodes as "0-3" or "all"\n',
      "none  CUDA                    none: pinned",
    } do
      assert.matches(line, context.out, 1, true)
    end
  end)

  it("says what may be placed, and what follows where it may not", function()
    local function told(what)
      local machine = { cpus = 4, page = 4096, kernel = "6", architecture = "x", range = 1,
        nodes = { { node = 0, total = 1, free = 1, huge_free = 3, giant_free = 0 },
                  { node = 2, total = 1, free = 1, huge_free = 4, giant_free = 1 } },
        hugepages = { ["2MiB"] = { total = 19, free = 17 }, ["1GiB"] = { total = 2, free = 1 } },
        nodes_text = "0,2", thp = "madvise" }
      for key, value in pairs(what) do machine[key] = value end
      return select(2, run("doctor", { machine = machine })).out
    end
    local function placing(mbind, move_pages, prefault)
      return told { placing = { mbind = mbind, move_pages = move_pages, prefault = prefault,
        has_memory = "0-2", weighted = true } }
    end
    local fine = placing(0, 0, 0)
    assert.matches("ok    placing of memory       mbind and move_pages are allowed", fine, 1, true)
    assert.matches("warn  cpuset                  nodes 0,2 of 0-2 may be used", fine, 1, true)
    assert.matches("cpuset.mems of the control group sets this; numactl does not\n", fine, 1, true)
    assert.matches("ok    weights of nodes        page by page if", fine, 1, true)
    assert.matches("ok    control group           no limit\n", fine, 1, true)
    assert.matches("19 reserved, 17 free: 3 on node 0, 4 on node 2, 10 on nodes that may not be "
      .. "used\n", fine, 1, true)
    assert.matches("2 reserved, 1 free: 0 on node 0, 1 on node 2\n", fine, 1, true)
    assert.matches("ok    free memory             goes back to the kernel", fine, 1, true)
    assert.matches('mbind is refused here (EPERM), as by a container\'s seccomp filter: '
      .. 'only numa = "local" is served', placing(1, 1, 0), 1, true)
    assert.matches("warn  placing of memory       move_pages is not in this kernel (ENOSYS)\n",
      placing(0, 38, 0), 1, true)
    assert.matches("MADV_POPULATE_WRITE fails", placing(0, 0, 22), 1, true)
    assert.matches("madvise is refused here (EPERM), as by a container's seccomp filter: "
      .. "strategies with prefault = true use their or_else", placing(0, 0, 1), 1, true)
    local filtered = told { memlock = 2 ^ 23, placing = { mbind = 0, move_pages = 0, prefault = 0,
      huge = 1, give_back = 1, lock = 1 } }
    for _, line in ipairs {
      "warn  transparent huge pages  madvise is refused here (EPERM), as by",
      "warn  locked memory           mlock is refused here (EPERM), as by",
      "warn  free memory             madvise is refused here (EPERM), as by",
    } do
      assert.matches(line, filtered, 1, true)
    end
    assert.matches("warn  control group           512 MiB, 12 MiB left",
      told { group = { limit = 2 ^ 29, left = 12 * 2 ^ 20 } }, 1, true)
    assert.matches("ok    memory pressure         7 % of the last ten seconds were waits for "
      .. "memory, and 1 MiB of 512 MiB left\n",
      told { pressure = { stalled = 7, limit = 2 ^ 29, left = 2 ^ 20 } }, 1, true)
    assert.matches("none  memory pressure         this kernel does not count waits for memory: "
      .. "loam.pressure() is 0\n", fine, 1, true)
  end)

  it("tells the devices, and what is wrong with their driver", function()
    local function cuda(what)
      return select(2, run("doctor", { machine = { cpus = 1, page = 4096, kernel = "6",
        architecture = "x", nodes = { { node = 0, total = 1, free = 1 } }, hugepages = {},
        range = 1, cuda = what } })).out:match("[^\n]*CUDA.*")
    end
    local devices = { { device = 0, name = "H100", total = 2 ^ 36, free = 2 ^ 35, node = 1 },
                      { device = 1, name = "L4", total = 2 ^ 34, reason = "broken", node = -1 } }
    assert.equal("ok    CUDA                    0 H100 (64 GiB, 32 GiB free, node 1), "
      .. "1 L4 (16 GiB, broken)\n",
      cuda { present = true, driver = "13.0", toolkit = "12.4", devices = devices })
    assert.truthy(cuda({ present = true, driver = "11.8", toolkit = "12.4", devices = devices })
      :find("the driver is of CUDA 11.8, older than the toolkit of loam's build (12.4)", 1, true))
    assert.truthy(cuda({ present = false, driver = "11.0", reason = "it is too old" })
      :find("^warn  CUDA +none: pinned, device and managed need an or_else\n +it is too old\n"))
  end)

  it("says that huge pages are switched off for the process", function()
    local copy = {}
    for key, value in pairs(MACHINE) do copy[key] = value end
    copy.thp, copy.thp_disabled = "always", true
    local _, context = run("doctor", { machine = copy })
    assert.matches("none  transparent huge pages  prctl(PR_SET_THP_DISABLE) switches them off "
      .. 'here: huge = "thp" has no effect\n', context.out, 1, true)
  end)

  it("says what is missing without libnuma", function()
    local copy = {}
    for key, value in pairs(MACHINE) do copy[key] = value end
    copy.libnuma = false
    local _, context = run("doctor", { machine = copy })
    assert.truthy(context.out:find("\nnone  libnuma +not found: a policy that names nodes as "
      .. '"0%-3" or "all" is refused\n +install libnuma1; numbers of nodes work without it\n'))
  end)

  it("needs nothing that a machine may not tell", function()
    local status, context = run("doctor", { machine = {
      kernel = "6.1", architecture = "x86_64", cpus = 1, page = 4096, range = 2 ^ 40, thp = "",
      nodes = { { node = 0, total = 0, free = 0 } }, hugepages = {}, membarrier = false,
      rseq = false, luajit = false,
    } })
    assert.equal("", context.err)
    assert.equal(0, status)
  end)

  it("passes the engine's JSON on", function()
    assert.equal('{"verb":"doctor","version":1,"ok":true,"a":1}\n',
      select(2, run("doctor --json", { machine = '{"a":1}' })).out)
  end)
end)
