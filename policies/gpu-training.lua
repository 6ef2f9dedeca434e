-- gpu-training.lua: weights on the device, activations too large for it in managed memory.
--
-- Weights and optimizer state stay in device memory, in loam's own pool. Activations of more than
-- 1 GiB are managed: they may outgrow the device, and move there page by page as they are used.
-- Staging buffers are pinned, on the NUMA node that the device is on (that is what `numa` left out
-- means), so that copies run at the full speed of the bus. Everything else is ordinary memory.
--
-- Every chain ends in memory of the host: on a machine without a GPU all of it is served there, and
-- the same program runs. Where there is one, loam_malloc passes members of devices over.
--
-- Costs: a managed block that does not fit is slower to use than one of the device; pinned memory
-- is not swapped out, so there is a limit on it.

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
