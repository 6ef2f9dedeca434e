-- default.lua: what a program gets without a policy, written out; the place to start from.
--
-- A policy is one Lua file. It describes kinds of memory (strategies), and a function `pick` that
-- answers, for a request, which of them serves it. `pick` is run when the file is loaded, not when
-- memory is asked for: loam follows both sides of every comparison and keeps the decisions.
--
-- Costs nothing: one strategy, one leaf.

local plain = loam.host { name = "plain" }

return loam.policy {
  name = "default",

  -- What `req` tells:
  --   req.tag       what the memory is for, dotted: "tensor.weights". Ask by
  --                 req.tag:under("tensor"), :is("tensor.weights"), :glob("*.cache"), :part(1)
  --   req.file, req.func, req.module, req.line   where in the program, as far as known
  --   req.size, req.align, req.zero              bytes asked for; alignment needed; zeroed or not
  --   req.node, req.device, req.live             caller's NUMA node; device; bytes live under tag
  pick = function(req)
    return plain
  end,

  -- Run before the policy goes live; one that fails refuses it.
  tests = {
    { tag = "",     size = 0,              expect = plain },
    { tag = "any",  size = 64 * loam.MiB,  expect = plain },
  },
}
