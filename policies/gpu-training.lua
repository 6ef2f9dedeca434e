-- gpu-training.lua: weights on the device, and activations that are too large for it in managed
-- memory.
--
-- Weights and optimizer state stay in device memory, in loam's own pool. Activations of more than 1
-- GiB are managed memory: they may be larger than the device, and move to it page by page when they
-- are used. Staging buffers are pinned, so that copies run at the full speed of the bus. Without
-- `numa`, pinned memory is on the NUMA node of the device. All other memory is ordinary.
--
-- Every chain ends in ordinary memory of the host, so that the program also runs on a machine
-- without a GPU. On a machine with a GPU, loam_malloc passes over members of a chain that are
-- device memory.
--
-- Costs: a managed block that does not fit on the device is slower than device memory. Pinned
-- memory is never swapped out, so it has a limit.

local GiB = loam.GiB

local host        = loam.host { name = "host", align = 64 }
local device      = loam.device { name = "device", pool = "cache" }:or_else(host)
local activations = loam.managed { name = "activations", prefer = "current" }:or_else(host)
local staging     = loam.pinned { name = "staging", portable = true, limit = 4 * GiB }
  :or_else(host)

return loam.policy {
  name = "gpu-training",
  pick = function(req)
    if req.tag:under("model") or req.tag:under("optimizer") then return device end
    if req.tag:under("activations") then
      return req.size > 1 * GiB and activations or device
    end
    if req.tag:under("staging") then return staging end
    return host
  end,
  tests = {
    { tag = "model.weights",  size = 64 * loam.MiB, expect = device },
    { tag = "optimizer.adam", size = 64 * loam.MiB, expect = device },
    { tag = "activations",    size = 1 * GiB,       expect = device },
    { tag = "activations",    size = 1 * GiB + 1,   expect = activations },
    { tag = "staging.batch",  size = 16 * loam.MiB, expect = staging },
    { tag = "log",            size = 100,           expect = host },
  },
  always = {
    ["only staging is pinned"] = function(req, got)
      return got.kind ~= "pinned" or req.tag:under("staging")
    end,
  },
}
