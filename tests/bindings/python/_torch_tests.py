"""_torch_tests - PyTorch itself under loam.torch, on the stand-ins for CUDA's driver and runtime.

    _torch_tests.py [CASE...]

Each case runs in its own process: PyTorch takes only one allocator in a process, and the end of the
process is tested too. If the stand-in sees a violation, the exit status is 86. There are no
kernels, so the cases fill and read tensors by copies. tests/long/torch runs this program.
"""

import ctypes
import gc
import multiprocessing
import os
import subprocess
import sys
import threading
import time

POLICY = """local device = loam.device {{ name = "device", pool = "{pool}" }}
local denied = loam.deny {{ name = "denied" }}
return loam.policy {{ name = "cases", pick = function(req)
  if req.tag:under("denied") then return denied end
  return device
end }}"""

cases = []


def case(**environment):
    """Registers a case. It runs under a policy and with loam installed, unless install=""."""
    def enter(function):
        cases.append((function.__name__, function, environment))
        return function
    return enter


def check(is_so, *words):
    if not is_so:
        raise AssertionError(" ".join(map(str, words)))


def equal(left, right):
    check(left == right, repr(left), "is not", repr(right))


def filled(torch, count, start=0, device="cuda"):
    """Returns a tensor of `count` numbers from `start` on, on the device."""
    there = torch.empty(count, device=device)
    there.copy_(torch.arange(start, start + count, dtype=torch.float32))
    return there


def holds(tensor, start=0):
    """Returns whether the tensor holds the numbers of filled()."""
    import torch
    return bool((tensor.cpu() == torch.arange(start, start + tensor.numel(),
                                              dtype=torch.float32)).all())


def in_thread(function, *arguments):
    answers = []
    thread = threading.Thread(target=lambda: answers.append(function(*arguments)))
    thread.start()
    thread.join()
    return answers[0]


def live(loam, tag):
    return sum(row["live_bytes"] for row in loam.stats("tag") if row["tag"] == tag)


# ---- Tags

@case()
def tags_of_threads(torch, loam):
    with loam.tag("outer"):
        outer = filled(torch, 1000)
        with loam.tag("inner"):
            inner = torch.empty(1000, device="cuda")
        again = torch.empty(1000, device="cuda")
        other = in_thread(lambda: torch.empty(1000, device="cuda"))
    equal([loam.owner(t.data_ptr()).tag for t in (outer, inner, again, other)],
          ["outer", "inner", "outer", "torch.data"])
    equal(loam.owner(outer[10:]).address, outer.data_ptr())
    equal(loam.owner(torch.nn.Parameter(inner)).tag, "inner")
    equal(live(loam, "outer"), 8192)
    in_thread(lambda blocks: blocks.clear(), [outer])
    del outer, again
    equal(live(loam, "outer"), 0)


@case()
def tags_everywhere_in_the_backward_pass(torch, loam):
    """A thread of PyTorch copies the gradients, without the interpreter's lock."""
    def grad_of():
        leaf = torch.empty(1000, device="cuda", requires_grad=True)
        given = filled(torch, 1000)
        leaf.backward(given)
        check(holds(leaf.grad) and leaf.grad.data_ptr() != given.data_ptr(), "its gradient")
        return loam.owner(leaf.grad).tag
    with loam.tag("here"):
        equal(grad_of(), "torch.data")
    with loam.tag("step", everywhere=True):
        equal(grad_of(), "step")


# ---- Streams

@case(STANDIN_DELAY="25", STANDIN_MEMORY="256M")
def streams_in_threads(torch, loam):
    wrong = []

    def work(number):
        stream = torch.cuda.Stream()
        with loam.tag(f"thread{number}"), torch.cuda.stream(stream):
            for i in range(30):
                one = filled(torch, 100 + i * 500, number)
                two = one.clone()
                del one
                three = filled(torch, 100 + i * 500, -1000)
                if not holds(two, number):
                    wrong.append((number, i))
                del two, three
        stream.synchronize()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(wrong, [])


@case(STANDIN_DELAY="40")
def recorded_streams(torch, loam):
    """Memory that another stream still reads is not given out again."""
    side = torch.cuda.Stream()
    for i in range(20):
        block = filled(torch, 100_000, i)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            copied = block.clone()
        block.record_stream(side)
        del block
        filled(torch, 100_000, -5000)
        side.synchronize()
        check(holds(copied, i), "round", i)
    with loam.tag("late"):
        late = torch.empty(1 << 20, device="cuda")
    late.record_stream(side)
    del late
    torch.cuda.empty_cache()
    equal(live(loam, "late"), 0)


@case()
def pinned_memory_and_copies_that_do_not_wait(torch, loam):
    """PyTorch pins with its own allocator. It accepts memory that loam has pinned as pinned."""
    host = torch.arange(10_000, dtype=torch.float32).pin_memory()
    check(host.is_pinned() and loam.owner(host.data_ptr()) is None, "PyTorch's own")
    there = host.to("cuda", non_blocking=True)
    torch.cuda.synchronize()
    check(holds(there), "copied")
    loam.policy.load(text="""local pinned = loam.pinned { name = "pinned" }
local device = loam.device { name = "device" }
return loam.policy { pick = function(req)
  if req.tag:under("staging") then return pinned end
  return device
end }""")
    staged = torch.frombuffer(loam.Block(40_000, "staging"), dtype=torch.float32)
    check(staged.is_pinned(), "loam's")
    staged.copy_(there, non_blocking=True)
    torch.cuda.synchronize()
    check(holds(staged), "copied back")


# ---- Lack of memory, figures, policies

@case(STANDIN_MEMORY="256M")
def wanting_is_an_error_of_pytorchs(torch, loam):
    held = []
    try:
        while True:
            held.append(torch.empty(10 << 20, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError as error:
        words = str(error)
    check(words.startswith("CUDA out of memory. Tried to allocate 10485760 bytes"), words)
    check("strategy 'device' cannot serve it" in words, words)
    check(len(held) >= 24, len(held), "blocks")
    held.clear()
    check(holds(filled(torch, 1 << 20)), "it goes on")
    with loam.tag("denied"):
        try:
            torch.empty(1000, device="cuda")
            check(False, "denied")
        except torch.OutOfMemoryError as error:
            check("the policy denies it" in str(error), error)
    equal(torch.cuda.memory_stats()["num_ooms"], 2)


@case()
def figures_of_torch_cuda(torch, loam):
    torch.cuda.init()
    equal(torch.cuda.memory_allocated(), 0)
    one, two = (torch.empty(size, dtype=torch.uint8, device="cuda") for size in (1000, 5000))
    equal(torch.cuda.memory_allocated(), 6000)
    del two
    equal((torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()), (1000, 6000))
    torch.cuda.reset_peak_memory_stats()
    equal(torch.cuda.max_memory_allocated(), 1000)
    stats = torch.cuda.memory_stats()
    equal([stats["allocated_bytes.all." + key] for key in ("allocated", "freed")], [6000, 5000])
    torch.cuda.reset_accumulated_memory_stats()
    equal(torch.cuda.memory_stats()["allocation.all.freed"], 0)
    check("Allocated memory" in torch.cuda.memory_summary(), "a summary")
    check(torch.cuda.memory_reserved() >= 1000, "reserved")
    del one
    torch.cuda.empty_cache()
    equal(torch.cuda.memory_reserved(), 0)
    left, total = torch.cuda.mem_get_info()
    equal(left, total)


@case()
def a_policy_that_changes_under_live_tensors(torch, loam):
    kept = filled(torch, 10_000)
    loam.policy.load(text="""local managed = loam.managed { name = "managed" }
return loam.policy { pick = function() return managed end }""")
    later = filled(torch, 10_000, 7)
    loam.policy.load(text="""local driver = loam.device { name = "driver", pool = "driver" }
return loam.policy { pick = function() return driver end }""")
    last = filled(torch, 10_000, 9)
    equal([loam.owner(t).strategy for t in (kept, later, last)], ["device", "managed", "driver"])
    check(holds(kept) and holds(later, 7) and holds(last, 9), "all are whole")
    del kept, later, last
    equal(sum(row["live_bytes"] for row in loam.stats()), 0)


@case()
def every_pool_of_a_device(torch, loam):
    for pool in ("cache", "chunks", "driver", "none"):
        loam.policy.load(text=POLICY.format(pool=pool))
        tensors = [filled(torch, 1 + i * 1000, i) for i in range(50)]
        check(all(holds(tensor, i) for i, tensor in enumerate(tensors)), pool)


@case()
def a_tensor_that_grows_and_raw_allocations(torch, loam):
    tensor = filled(torch, 100)
    tensor.resize_(100_000)
    check(holds(tensor[:100]), "it has moved")
    with loam.tag("raw"):
        raw = torch.cuda.caching_allocator_alloc(5000)
    equal(loam.owner(raw).tag, "raw")
    torch.cuda.caching_allocator_delete(raw)
    equal(loam.owner(raw), None)
    equal(torch.empty(0, device="cuda").data_ptr(), 0)


@case(STANDIN_DEVICES="2")
def two_devices(torch, loam):
    here, there = filled(torch, 1000), filled(torch, 1000, 5, "cuda:1")
    equal([loam.owner(t).device for t in (here, there)], [0, 1])
    across = there.to("cuda:0")
    equal(loam.owner(across).device, 0)
    check(holds(across, 5), "copied across")
    equal([torch.cuda.memory_allocated(i) for i in range(2)], [8000, 4000])


# ---- Pools

@case(install="")
def a_pool_of_loams(torch, loam):
    """PyTorch divides pieces of 2 MiB or more. It returns them if it lacks memory or is asked
    to."""
    pool = loam.torch.pool()
    outside = torch.empty(1000, device="cuda")
    with loam.tag("pool"), torch.cuda.use_mem_pool(pool):
        inside = filled(torch, 1000)
        large = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
    equal(loam.owner(outside), None)
    equal([loam.owner(t).tag for t in (inside, large)], ["pool", "pool"])
    equal(live(loam, "pool"), (2 << 20) + (30 << 20))
    check(torch.cuda.memory_allocated() > 30 << 20, "the figures are PyTorch's own")
    check(holds(inside), "inside")
    del inside, large
    del pool
    torch.cuda.empty_cache()
    equal(live(loam, "pool"), 0)


@case(install="", STANDIN_MEMORY="256M")
def a_pool_that_has_no_more(torch, loam):
    pool = loam.torch.pool()
    held = []
    with torch.cuda.use_mem_pool(pool):
        try:
            while True:
                held.append(torch.empty(30 << 20, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError as error:
            check("CUDA out of memory" in str(error), error)
    check(len(held) >= 7, len(held), "blocks")


# ---- Other processes, ends

@case()
def children_that_fork(torch, loam):
    """Children only have names of the tensors: when they free them, the driver gets no call."""
    tensor = filled(torch, 1000)
    child = os.fork()
    if child == 0:
        del tensor
        gc.collect()
        try:
            torch.empty(10, device="cuda")
            os._exit(1)
        except RuntimeError as error:
            sys.exit(0 if "forked" in str(error) else f"not its words: {error}")
    equal(os.waitpid(child, 0)[1], 0)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        equal(pool.map(abs, [-1, -2]), [1, 2])
    check(holds(tensor), "the parent's")


@case()
def a_loader_with_workers(torch, loam):
    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            return torch.full((100,), float(index))
    kept = filled(torch, 10)
    loader = torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=2)
    sums = [float(batch.to("cuda").cpu().sum()) for batch in loader]
    equal(sums, [600.0, 2200.0])
    check(holds(kept), "the parent's")


@case()
def sharing_with_another_process_is_refused_in_words(torch, loam):
    from torch.multiprocessing.reductions import reduce_tensor
    tensor = filled(torch, 1000)
    try:
        reduce_tensor(tensor)
        check(False, "it was not refused")
    except RuntimeError as error:
        check("CUDAPluggableAllocator does not yet support" in str(error), error)


@case()
def an_end_with_live_tensors_and_streams(torch, loam):
    module = sys.modules["__main__"]
    module.kept = [filled(torch, 1000, i) for i in range(10)]
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        module.late = filled(torch, 1 << 20)
    module.late.record_stream(torch.cuda.current_stream())
    torch.empty(1000).pin_memory()

    def hold():
        module.of_thread = filled(torch, 1000)
        time.sleep(1000)
    threading.Thread(target=hold, daemon=True).start()
    while not hasattr(module, "of_thread"):
        time.sleep(0.01)


@case(STANDIN_DELAY="1000")
def an_end_with_work_under_way(torch, loam):
    module = sys.modules["__main__"]
    host = torch.arange(1000, dtype=torch.float32).pin_memory()
    module.kept = host.to("cuda", non_blocking=True)
    other = module.kept.clone()
    del other


@case(install="")
def without_install_pytorch_is_as_it_is(torch, loam):
    """PyTorch's own allocator also works on the stand-ins."""
    check(not loam.torch.is_installed(), "not asked for")
    tensor = filled(torch, 1000)
    check(holds(tensor) and loam.owner(tensor) is None, "its own")
    check(torch.cuda.memory_reserved() >= 2 << 20, "its own figures")
    with_install = subprocess.run(
        [sys.executable, "-c", "import torch, loam.torch; torch.empty(1, device='cuda'); "
         "loam.torch.install()"], capture_output=True, text=True, timeout=300)
    check("Can't swap an already initialized allocator" in with_install.stderr, with_install.stderr)


@case()
def kernels_fail_and_say_so(torch, loam):
    """Kernels fail, so no other case can rely on values that no kernel has computed."""
    try:
        torch.ones(1000, device="cuda")
        check(False, "a kernel ran")
    except RuntimeError as error:
        check("operation not supported" in str(error), error)


@case()
def arrays_of_loam_are_tensors(torch, loam):
    array = loam.Block(4000, "host")
    tensor = torch.frombuffer(array, dtype=torch.float32)
    tensor.copy_(filled(torch, 1000))
    equal(loam.owner(tensor).tag, "host")
    check(holds(tensor), "filled")


def run_here(name, function, environment):
    import warnings
    warnings.filterwarnings("ignore", message="Can't initialize NVML")
    import torch
    import loam
    import loam.torch
    loam.policy.load(text=POLICY.format(pool="cache"))
    if "install" not in environment:
        loam.torch.install()
    function(torch, loam)
    violations = ctypes.CDLL(os.environ["LOAM_CUDA_DRIVER"]).standin_violations()
    equal(violations, 0)
    print("ok", flush=True)


def run_apart(name, environment):
    surroundings = dict(os.environ, STANDIN_MEMORY="1G")
    surroundings.update((key, value) for key, value in environment.items() if key != "install")
    start = time.monotonic()
    done = subprocess.run([sys.executable, os.path.abspath(__file__), "--here", name],
                          env=surroundings, capture_output=True, text=True, timeout=600)
    is_ok = done.returncode == 0 and done.stdout.strip().endswith("ok")
    print(f"{'ok    ' if is_ok else 'FAILED'}  {name.replace('_', ' ')} "
          f"({time.monotonic() - start:.1f} s)", flush=True)
    if not is_ok:
        print(f"        status {done.returncode}\n{done.stdout}{done.stderr}", flush=True)
    return is_ok


def main(names):
    if names[:1] == ["--here"]:
        run_here(*next(entry for entry in cases if entry[0] == names[1]))
        return 0
    chosen = [entry for entry in cases if not names or entry[0] in names]
    failed = [name for name, _, environment in chosen if not run_apart(name, environment)]
    print(f"{len(chosen)} cases, {len(failed)} failed" if chosen else f"no case of {names}")
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
