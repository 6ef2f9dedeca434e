-- derive - traces of device memory that follow from the arithmetic of programs. No program runs:
-- the sizes are those that its arrays would have.
--
--   luajit derive.lua transformer|resnet|random [STEPS] > FILE
--
-- trace.h describes the format. The function that writes a trace describes its program. Random
-- numbers are a fixed sequence.

local KIB, MIB = 1024, 1024 * 1024

-- ---- Writing ----------------------------------------------------------------------------------

local next_id = 0

local function alloc(bytes, stream)
  next_id = next_id + 1
  io.write(("alloc %d %.0f %d\n"):format(next_id, math.max(1, math.floor(bytes)), stream or 0))
  return next_id
end

local function free(id) io.write("free ", id, "\n") end
local function free_all(ids) for _, id in ipairs(ids) do free(id) end end
local function mark(...) io.write("mark ", table.concat({ ... }, " "), "\n") end

--- Allocates a workspace or a temporary, and frees it right away.
local function pass(bytes) free(alloc(bytes)) end

-- A generator of its own, so that all machines draw equal numbers (Park and Miller's minimal
-- standard).
local seed = 20261121
local function chance(low, high)
  seed = seed * 16807 % 2147483647
  return low + math.floor(seed / 2147483647 * (high - low + 1))
end

-- ---- Parameters, gradients, the state of an optimizer ------------------------------------------

local function allocate(sizes, factor)
  local ids = {}
  for i, bytes in ipairs(sizes) do ids[i] = alloc(bytes * (factor or 1)) end
  return ids
end

--- A step of AdamW, parameter by parameter. Two moments of 4 bytes an element are kept from the
-- first step on; two temporaries are freed.
local function adam(elements, state)
  for i, n in ipairs(elements) do
    if not state[i] then state[i] = { alloc(n * 4), alloc(n * 4) } end
    local root = alloc(n * 4)
    pass(n * 4)
    free(root)
  end
end

-- ---- A transformer ----------------------------------------------------------------------------

--- A language model: 24 layers, width 2,048, 16 heads, an inner width 4 times as large, 50,257
-- words. Weights have 2 bytes, the state of AdamW 4. A step has 8 sequences of 128 to 1,024 words,
-- of another length each time. It has dropout. Attention is not fused: the softmax of the scores,
-- its mask, and the masked softmax stay for the backward pass. A second stream copies the input,
-- one step ahead. Gradients are freed before the next step.
local function transformer(steps)
  local layers, width, heads, words, batch = 24, 2048, 16, 50257, 8
  local elements = { words * width, 1024 * width }
  for _ = 1, layers do
    local square = width * width
    for _, n in ipairs { 3 * square, 3 * width, square, width, 4 * square, 4 * width, 4 * square,
        width, width, width, width, width } do
      elements[#elements + 1] = n
    end
  end
  local bytes = {}
  for i, n in ipairs(elements) do bytes[i] = 2 * n end
  allocate(bytes)
  alloc(8 * MIB + 64 * KIB) -- the matrix library's workspace
  local state, gradients = {}, {}
  local function bring()
    local length = chance(128, 1024)
    return { length = length, ids = { alloc(batch * length * 8, 1), alloc(batch * length * 8, 1) } }
  end
  local coming = bring()

  local function layer_forward(t, s)
    local kept, row, scores = {}, t * width * 2, batch * heads * s * s
    local function keep(n) kept[#kept + 1] = alloc(n) end
    keep(row); keep(t * 4); keep(t * 4) -- norm, its mean and deviation
    keep(3 * row) -- query, key, value
    local raw = alloc(scores * 2)
    local masked = alloc(scores * 2)
    free(raw)
    keep(scores * 2) -- softmax
    free(masked)
    keep(scores); keep(scores * 2) -- dropout mask, masked softmax
    keep(row) -- joined heads
    local out = alloc(row)
    keep(t * width); keep(row) -- dropout mask, sum with the input
    free(out)
    keep(row); keep(t * 4); keep(t * 4)
    keep(4 * row); keep(4 * row) -- inner layer, before and after the activation
    out = alloc(row)
    keep(t * width); keep(row)
    free(out)
    return kept
  end

  local function layer_backward(kept, t, s, first)
    local row, scores = t * width * 2, batch * heads * s * s
    local flow = alloc(row)
    local function through(n)
      local nxt = alloc(n)
      free(flow)
      flow = nxt
    end
    local function grad(i) gradients[#gradients + 1] = alloc(bytes[first + i]) end
    local at = #kept
    local function drop(n) for _ = 1, n do free(kept[at]); at = at - 1 end end
    drop(2); through(row)
    grad(6); grad(7); through(4 * row); drop(1)
    through(4 * row); drop(1)
    grad(4); grad(5); through(row)
    grad(10); grad(11); through(row); drop(3)
    drop(2); through(row)
    grad(2); grad(3); through(row); drop(1)
    through(scores * 2); drop(2)
    through(scores * 2); drop(1)
    through(3 * row); drop(1)
    grad(0); grad(1); through(row)
    grad(8); grad(9); through(row); drop(3)
    free(flow)
  end

  for step = 1, steps do
    mark("step", step)
    free_all(gradients)
    gradients = {}
    local now = coming
    coming = bring()
    local s, t = now.length, batch * now.length
    local kept = {}
    local embedded = alloc(t * width * 2)
    for l = 1, layers do kept[l] = layer_forward(t, s) end
    local logits = alloc(t * words * 2)
    local wide = alloc(t * words * 4) -- for the loss
    local loss = alloc(4)
    local flow = alloc(t * words * 4)
    free(wide)
    local narrow = alloc(t * words * 2)
    free(flow); free(logits)
    gradients[#gradients + 1] = alloc(bytes[1])
    free(narrow)
    for l = layers, 1, -1 do layer_backward(kept[l], t, s, 3 + (l - 1) * 12) end
    gradients[#gradients + 1] = alloc(bytes[2])
    free(embedded); free(loss); free_all(now.ids)
    adam(elements, state)
  end
end

-- ---- ResNet-50 --------------------------------------------------------------------------------

--- ResNet-50 in 4 bytes, with momentum. A step has 64 images of 192, 224 or 256 pixels a side; each
-- 12th step, the last of an epoch, has 40. A convolution keeps its output. Its norm keeps its own
-- output and two vectors. Each convolution has a workspace: with a filter of 3 by 3 it holds 4
-- unfolded images, otherwise the filter. When a shape comes for the first time, four algorithms are
-- tried with 1, 2, 3 and 5 times as much (512 MiB at most).
local function resnet(steps)
  local convolutions, elements = {}, {}
  local function conv(from, to, k, scale)
    convolutions[#convolutions + 1] = { from = from, to = to, k = k, scale = scale }
    elements[#elements + 1] = from * to * k * k
    elements[#elements + 1] = to
    elements[#elements + 1] = to
  end
  conv(3, 64, 7, 2)
  local from = 64
  for stage, blocks in ipairs { 3, 4, 6, 3 } do
    local width, scale = 64 * 2 ^ (stage - 1), 4 * 2 ^ (stage - 1)
    for block = 1, blocks do
      conv(from, width, 1, block == 1 and stage > 1 and scale / 2 or scale)
      conv(width, width, 3, scale)
      conv(width, 4 * width, 1, scale)
      if block == 1 then conv(from, 4 * width, 1, scale) end
      from = 4 * width
    end
  end
  elements[#elements + 1], elements[#elements + 2] = 2048 * 1000, 1000
  local bytes, momenta, tried, gradients = {}, nil, {}, {}
  for i, n in ipairs(elements) do bytes[i] = n * 4 end
  allocate(bytes)

  local function out_bytes(c, images, side) return images * c.to * (side / c.scale) ^ 2 * 4 end
  local function workspace(c, images, side, way)
    local pixels = (side / c.scale) ^ 2
    local n = c.k == 3 and 4 * c.from * 9 * pixels * 4 or c.from * c.to * c.k * c.k * 4
    local key = table.concat({ c.from, c.to, c.k, c.scale, images, side, way }, " ")
    if not tried[key] then
      for _, times in ipairs { 1, 2, 3, 5 } do pass(math.min(512 * MIB, n * times)) end
      tried[key] = true
    end
    return alloc(math.min(512 * MIB, n))
  end

  for step = 1, steps do
    mark("step", step)
    free_all(gradients)
    gradients = {}
    local images, side = step % 12 == 0 and 40 or 64, ({ 192, 224, 256 })[chance(1, 3)]
    local input, kept = alloc(images * 3 * side * side * 4), {}
    for i, c in ipairs(convolutions) do
      local n = out_bytes(c, images, side)
      local work = workspace(c, images, side, "forward")
      kept[i] = { alloc(n) }
      free(work)
      kept[i][2], kept[i][3], kept[i][4] = alloc(n), alloc(c.to * 4), alloc(c.to * 4)
    end
    local pooled, scores = alloc(images * 2048 * 4), alloc(images * 1000 * 4)
    pass(4)
    local flow = alloc(out_bytes(convolutions[#convolutions], images, side))
    gradients[1], gradients[2] = alloc(bytes[#bytes - 1]), alloc(bytes[#bytes])
    free(scores); free(pooled)
    for i = #convolutions, 1, -1 do
      local c, norm = convolutions[i], alloc(out_bytes(convolutions[i], images, side))
      free(flow)
      gradients[#gradients + 1] = alloc(bytes[3 * i - 1])
      gradients[#gradients + 1] = alloc(bytes[3 * i])
      free(kept[i][2]); free(kept[i][3]); free(kept[i][4])
      local work = workspace(c, images, side, "weights")
      gradients[#gradients + 1] = alloc(bytes[3 * i - 2])
      free(work)
      work = workspace(c, images, side, "data")
      flow = alloc(i > 1 and out_bytes(convolutions[i - 1], images, side) or 4)
      free(work); free(norm); free(kept[i][1])
    end
    free(flow); free(input)
    momenta = momenta or allocate(bytes)
    for _, n in ipairs(bytes) do pass(n) end
  end
end

-- ---- Random sizes -----------------------------------------------------------------------------

--- Works like RMM's random_allocations. Each operation has an even chance to allocate 1 byte to 64
-- MiB, all sizes equally likely, or to free a live block. At most 16 GiB are live. A step is 100
-- operations.
local function random(steps)
  local live, size, bytes, most = {}, {}, 0, 16 * KIB * MIB
  for _ = 1, steps * 100 do
    local wanted = chance(1, 64 * MIB)
    if #live == 0 or (chance(0, 1) == 1 and bytes + wanted <= most) then
      live[#live + 1] = alloc(wanted)
      size[#live] = wanted
      bytes = bytes + wanted
    else
      local which, last = chance(1, #live), #live
      free(live[which])
      bytes = bytes - size[which]
      live[which], size[which] = live[last], size[last]
      live[last], size[last] = nil, nil
    end
  end
end

local made = {
  transformer = { transformer, 40, "training steps of a transformer" },
  resnet = { resnet, 60, "training steps of ResNet-50" },
  random = { random, 200, "hundreds of random allocations and frees" },
}
local shape = made[arg[1]]
if not shape then
  io.stderr:write("derive.lua transformer|resnet|random [STEPS]\n")
  os.exit(2)
end
local steps = tonumber(arg[2]) or shape[2]
io.write(("# derived from the arithmetic of %d %s: no program ran\n"):format(steps, shape[3]))
shape[1](steps)
