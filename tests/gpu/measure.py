"""measure - what allocation costs: loam, the driver, CuPy's pool, PyTorch's caching allocator.

    measure.py FOLDER [--quick] [--stand-in]

FOLDER has libmeasure.so and, where there is PyTorch, libtorch_host.so: tests/gpu/run builds them.
All contenders in one process, in turn, on one stream; the least of five rounds. Prints Markdown.
"""

import ctypes
import os
import platform
import sys

import loam
from loam import _loam

FOLDER = sys.argv[1]
QUICK = "--quick" in sys.argv
STAND_IN = "--stand-in" in sys.argv
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

library = ctypes.CDLL(os.path.join(FOLDER, "libmeasure.so"))
ALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
for name in ("pairs", "random", "replay"):
    getattr(library, "measure_" + name).restype = ctypes.c_double
for name in ("async_reserved", "loam_reserved", "used"):
    getattr(library, "measure_" + name).restype = ctypes.c_size_t
library.measure_stream.restype = ctypes.c_void_p


def pair_of(name, where=library):
    return ctypes.cast(getattr(where, name + "_alloc"), ALLOC), ctypes.cast(
        getattr(where, name + "_free"), FREE)


def find(module):
    if STAND_IN:
        return None
    try:
        return __import__(module)
    except ImportError:
        return None


torch, cupy = find("torch"), find("cupy")
if torch:  # first: it makes the primary context with its own flags
    torch.cuda.init()
    torch.empty(1, device="cuda")
library.measure_open()
STREAM = library.measure_stream()
loam.policy.load(text="""local any = loam.device {}:or_else(loam.pinned {})
return loam.policy { name = "measure", pick = function() return any end }""")

CONTENDERS = {"loam": pair_of("loam_pair")}
host = os.path.join(FOLDER, "libtorch_host.so")
if torch and os.path.exists(host):
    CONTENDERS["PyTorch's caching allocator"] = pair_of("torch_pair", ctypes.CDLL(host))
CONTENDERS["cuMemAllocAsync"] = pair_of("async")
CONTENDERS["cuMemAlloc"] = pair_of("driver")
SLOW = {"cuMemAlloc", "cuMemHostAlloc"}


def text_of(size):
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


def figure(value):
    return "no memory" if value < 0 else f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def give_all_back():
    loam._loam.device_trim(-1)
    library.measure_async_reserved(1)
    if torch:
        torch.cuda.empty_cache()
    if cupy:
        cupy.get_default_memory_pool().free_all_blocks()


def table(head, rows):
    print(f"| {' | '.join(head)} |\n|---{'|--:' * (len(head) - 1)}|")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    print()


def machine():
    name, version = ctypes.create_string_buffer(200), ctypes.c_int()
    library.measure_device(name, ctypes.c_size_t(200), ctypes.byref(version))
    rows = [("device", name.value.decode()), ("driver's CUDA", str(version.value)),
            ("processor", processor()), ("kernel", platform.release()),
            ("Python", platform.python_version()), ("loam", loam.__version__)]
    rows += [(module.__name__, module.__version__) for module in (torch, cupy) if module]
    table(("what", "which"), rows)


def processor():
    with open("/proc/cpuinfo") as lines:
        names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} × {names[0]}" if names else platform.machine()


def pairs():
    sizes = [256, 4 * KIB, 64 * KIB, MIB] if STAND_IN else [
        256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB,
        256 * MIB, GIB]
    rows = []
    for name, (alloc, free) in CONTENDERS.items():
        row = [name]
        for size in sizes:
            count = (200 if QUICK else 1000) if name in SLOW else 20_000 if QUICK else 100_000
            if STAND_IN:
                count = 100
            row.append(figure(min(library.measure_pairs(
                alloc, free, ctypes.c_size_t(size), count, ctypes.c_void_p(STREAM))
                for _ in range(3 if name in SLOW else 5))))
        rows.append(row)
        give_all_back()
    print("Allocate and free on one stream, ns a pair:\n")
    table(["", *map(text_of, sizes)], rows)


def python_pairs():
    """What only Python can call, beside loam called from Python."""
    import time
    sizes = [256, 64 * KIB, 16 * MIB]

    def take(malloc, size, count):
        best = float("inf")
        for _ in range(5):
            start = time.perf_counter_ns()
            for _ in range(count):
                block = malloc(size)
                del block
            best = min(best, (time.perf_counter_ns() - start) / count)
        return best
    rows = [["CuPy's pool", *(figure(take(cupy.get_default_memory_pool().malloc, size, 20_000))
                              for size in sizes)],
            ["loam.cupy.allocator", *(figure(take(loam.cupy.allocator, size, 20_000))
                                      for size in sizes)]]
    print("From Python, ns a pair with what Python's loop costs:\n")
    table(["", *map(text_of, sizes)], rows)


def random_mix():
    total = _loam.device_memory(0)[1]
    shapes = [(MIB, 100)] if STAND_IN else [(4 * MIB, 1000), (64 * MIB, 1000), (GIB, 1000),
                                            (4 * MIB, 100_000)]
    rows = []
    for name, (alloc, free) in CONTENDERS.items():
        row = [name]
        for largest, count in shapes:
            times = [library.measure_random(alloc, free, ctypes.c_size_t(largest),
                                            ctypes.c_size_t(total // 100 * 80), count,
                                            ctypes.c_void_p(STREAM))
                     for _ in range(1 if name in SLOW else 3)]
            row.append(figure(min(times)))
            give_all_back()
        rows.append(row)
    print("A random mix (sizes even up to the largest, at most 80 % of the memory), ns a step:\n")
    table(["", *(f"{text_of(largest)}, {count} steps" for largest, count in shapes)], rows)


def record():
    """The allocations of a few training steps of a small transformer, batches of many lengths."""
    torch.cuda.memory._record_memory_history(max_entries=2_000_000, context=None)
    layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 6).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    generator = torch.Generator().manual_seed(1)
    for _ in range(5 if QUICK else 20):
        rows, length = (int(torch.randint(low, high, (1,), generator=generator))
                        for low, high in ((4, 24), (64, 512)))
        loss = model(torch.randn(rows, length, 1024, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    entries = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    names, trace = {}, []
    count = 0
    for entry in entries:
        if entry["action"] == "alloc":
            names[entry["addr"]] = count
            trace.append((count, entry["size"]))
            count += 1
        elif entry["action"] == "free_completed" and entry["addr"] in names:
            trace.append((names.pop(entry["addr"]), -1))
    trace += [(block, -1) for block in names.values()]
    return trace


def synthetic():
    """Where there is no PyTorch to record: two steps' worth of sizes, freed in reverse."""
    trace, count = [], 0
    for step in range(4):
        held = []
        for i in range(30):
            trace.append((count, (i * 7 + step * 13) % 50 * 4 * KIB + 512))
            held.append(count)
            count += 1
        trace += [(block, -1) for block in reversed(held)]
    return trace


def replay():
    trace = record() if torch else synthetic()
    flat = (ctypes.c_int64 * (2 * len(trace)))(*(n for pair in trace for n in pair))
    sizes, live, peak = {}, 0, 0
    for block, size in trace:
        live += size if size >= 0 else -sizes.pop(block)
        sizes.update({block: size} if size >= 0 else {})
        peak = max(peak, live)
    blocks = (ctypes.c_void_p * (1 + max(block for block, _ in trace)))()
    rows = []
    for name, (alloc, free) in CONTENDERS.items():
        if name in SLOW:
            continue
        give_all_back()
        before = library.measure_used()
        if torch:
            torch.cuda.reset_peak_memory_stats()
        played = flat, ctypes.c_size_t(len(trace)), blocks, ctypes.c_void_p(STREAM)
        time = library.measure_replay(alloc, free, *played)
        if name == "loam":
            give_all_back()
            held = library.measure_loam_reserved(*played)
        elif name == "cuMemAllocAsync":
            held = library.measure_async_reserved(0)
        else:
            held = torch.cuda.max_memory_reserved()
        rows.append([name, figure(time), text_of(held), f"{held / peak:.3f}",
                     text_of(max(0, library.measure_used() - before))])
        give_all_back()
    what = "Recorded from training a transformer" if torch else "A made-up trace"
    print(f"{what}: {len(trace)} events, peak live {text_of(peak)}:\n")
    table(["", "ns an event", "reserved", "reserved ÷ peak live", "seen by the driver"], rows)


def pinned():
    contenders = {"loam": pair_of("pinned"), "cuMemHostAlloc": pair_of("host")}
    sizes = [4 * KIB, MIB] if STAND_IN else [4 * KIB, 64 * KIB, MIB, 16 * MIB, 256 * MIB]
    rows = []
    for name, (alloc, free) in contenders.items():
        count = 20 if name in SLOW or STAND_IN else 10_000
        rows.append([name, *(figure(min(library.measure_pairs(
            alloc, free, ctypes.c_size_t(size), count, None) for _ in range(3)))
            for size in sizes)])
    print("Pinned memory, ns a pair:\n")
    table(["", *map(text_of, sizes)], rows)


machine()
pairs()
if cupy:
    python_pairs()
random_mix()
replay()
pinned()
