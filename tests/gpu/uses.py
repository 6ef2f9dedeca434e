"""uses - PyTorch and CuPy on a GPU with loam as their allocator: their results must stay right.

    uses.py torch | torch-pool | cupy

Each use needs its own process, because PyTorch takes only one allocator in a process.
"""

import sys
import threading

import loam

POLICY = """local device = loam.device { name = "device" }
local sleep = loam.device { name = "sleep", pool = "sleep" }
return loam.policy { name = "uses", pick = function(req)
  if req.tag:under("uses.sleep") then return sleep end
  return device
end }"""
SIZE = 64 << 20


def live(tag):
    return sum(row["live_bytes"] for row in loam.stats("tag") if row["tag"] == tag)


def total(tag):
    return sum(row["total_blocks"] for row in loam.stats("tag") if row["tag"] == tag)


def check(what, is_so):
    print(f"  {what:50} {'ok' if is_so else 'FAILED'}", flush=True)
    if not is_so:
        sys.exit(1)


def train(torch, device):
    """Returns the losses of a few steps, in double precision so that devices agree."""
    generator = torch.Generator().manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(),
                                torch.nn.Linear(256, 1)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 16)
    model = model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for step in range(20):
        rows = torch.randn(32 + step * 7, 64, generator=generator, dtype=torch.float64).to(device)
        loss = (model(rows) - rows.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def streams_agree(torch):
    """Runs producers and consumers on separate streams, with events between them."""
    wrong = []

    def work(number):
        stream = torch.cuda.Stream()
        with loam.tag(f"uses.thread{number}"), torch.cuda.stream(stream):
            for i in range(200):
                a = torch.full((1 + i * 1000,), float(i), device="cuda")
                b = a * 2
                del a
                c = torch.full((1 + i * 1000,), -1.0, device="cuda")
                if not bool((b == 2.0 * i).all()):
                    wrong.append(i)
                del b, c
        stream.synchronize()
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return not wrong


def check_sleep(make, address, is_same):
    """Puts a library's memory to sleep and wakes it. `make` makes an array of SIZE bytes."""
    with loam.tag("uses.sleep"):
        array = make()
    at, left = address(array), loam._loam.device_memory(0)[0]
    given = loam.sleep("uses.sleep")
    check("an array sleeps", given >= SIZE and loam.asleep("uses.sleep") == given)
    check("and the device has its memory free", loam._loam.device_memory(0)[0] >= left + SIZE)
    check("it wakes", loam.wake("uses.sleep") == given and loam.asleep() == 0)
    check("at its address, with its contents", address(array) == at and is_same(array))


def torch_sleeps(torch):
    check_sleep(lambda: torch.arange(SIZE // 8, dtype=torch.int64, device="cuda"),
                lambda array: array.data_ptr(),
                lambda array: torch.equal(array.cpu(), torch.arange(SIZE // 8)))


def use_torch():
    import torch
    loam.torch.install()
    with loam.tag("uses.weights"):
        weights = torch.ones(1000, 1000, device="cuda")
    check("a tensor has the tag in force", loam.owner(weights).tag == "uses.weights")
    check("and is where loam says", live("uses.weights") >= 4_000_000)
    with loam.tag("uses.step", everywhere=True):
        on_gpu = train(torch, "cuda")
    check("the backward pass has the tag as well", total("torch.data") == 0)
    on_cpu = train(torch, "cpu")
    check("training gives the losses of the CPU",
          max(abs(a - b) for a, b in zip(on_gpu, on_cpu)) < 1e-6)
    check("streams in threads agree", streams_agree(torch))
    torch_sleeps(torch)
    try:
        torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
        check("too much memory is an error", False)
    except RuntimeError as error:
        check("too much memory is an error, in words", "out of memory" in str(error))
    del weights
    torch.cuda.synchronize()
    check("all is freed", live("uses.weights") == 0 and loam.totals()["bad_frees"] == 0)


def use_torch_pool():
    import torch
    pool = loam.torch.pool()
    outside = torch.ones(1000, device="cuda")
    with loam.tag("uses.pool"), torch.cuda.use_mem_pool(pool):
        inside = torch.full((1 << 20,), 3.0, device="cuda")
    check("a pool's memory is loam's, with its tag", loam.owner(inside).tag == "uses.pool")
    check("other memory is PyTorch's own", loam.owner(outside) is None)
    check("and both can be used", float((inside[:1000] * outside).sum()) == 3000)
    with torch.cuda.use_mem_pool(loam.torch.pool()):
        torch_sleeps(torch)


def use_cupy():
    import cupy
    import numpy
    loam.cupy.install()
    with loam.tag("uses.weights"):
        weights = cupy.arange(1_000_000, dtype=cupy.float64)
    check("an array has the tag in force", loam.owner(weights).tag == "uses.weights")
    check("sums agree", float(weights.sum()) == 499_999_500_000.0)
    host = numpy.random.default_rng(1).random((300, 300))
    there = cupy.asarray(host)
    check("products agree", numpy.allclose(cupy.asnumpy(there @ there.T), host @ host.T))
    check("sorts agree", (cupy.asnumpy(cupy.sort(there.ravel())) == numpy.sort(host.ravel())).all())
    right = True
    for _ in range(50):
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            block = cupy.full(200_000, 5, dtype=cupy.int32)
            again = block + 1
            del block
            right = right and int(again.sum()) == 1_200_000
        del again
        stream.synchronize()
    check("streams agree", right)
    check_sleep(lambda: cupy.arange(SIZE // 8, dtype=cupy.int64), lambda array: array.data.ptr,
                lambda array: (cupy.asnumpy(array) == numpy.arange(SIZE // 8)).all())
    try:
        cupy.empty(1 << 50, dtype=cupy.uint8)
        check("too much memory is an error", False)
    except cupy.cuda.memory.OutOfMemoryError:
        check("too much memory is CuPy's own error", True)
    del weights, there
    check("all is freed", live("uses.weights") == 0 and loam.totals()["bad_frees"] == 0)


loam.policy.load(text=POLICY)
{"torch": use_torch, "torch-pool": use_torch_pool, "cupy": use_cupy}[sys.argv[1]]()
