-- default.lua: the memory that a program gets without a policy, written as a policy. Start here.
--
-- A policy is one Lua file. It describes kinds of memory (strategies), and has a function `pick`
-- that returns the strategy for a request. loam runs `pick` when the file is loaded, not when a
-- program allocates: it follows both sides of every comparison and keeps the decisions.
--
-- Costs: nothing. There is one strategy and one decision.

local plain = loam.host { name = "plain" }

return loam.policy {
  name = "default",

  -- The fields of `req`:
  --   req.tag      the purpose of the memory, a dotted name: "tensor.weights". Its questions are
  --                req.tag:under("tensor"), :is("tensor.weights"), :glob("*.cache"), :part(1)
  --   req.file, req.func, req.module, req.line   the place of the call, as far as loam knows it
  --   req.size, req.align, req.zero    bytes; alignment that the caller needs; true: zeroed memory
  --   req.node, req.device, req.live   the caller's NUMA node; its device; live bytes of the tag
  pick = function(req)
    return plain
  end,

  -- loam runs the tests before the policy becomes live. If one fails, the policy is refused.
  tests = {
    { tag = "",     size = 0,              expect = plain },
    { tag = "any",  size = 64 * loam.MiB,  expect = plain },
  },
}
