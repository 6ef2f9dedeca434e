"""measure - compares the cost of loam, the driver, CuPy's pool and PyTorch's caching allocator.

    measure.py FOLDER [--quick] [--stand-in]

FOLDER has libmeasure.so, traces (*.trace) and, if PyTorch is installed, libtorch_host.so:
tests/gpu/run makes them. All contenders run in turn in one process; the result is the least of
several rounds. Prints Markdown, and at the end which aims were reached. On the stand-in the figures
mean nothing: it only shows that the program works, with modules in place of PyTorch and CuPy
(fakes/).
"""

import ctypes
import glob
import os
import platform
import random
import subprocess
import sys
import time

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
        sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "fakes"))
    try:
        return __import__(module)
    except ImportError:
        return None


torch, cupy = find("torch"), find("cupy")
if torch:  # first: it creates the primary context with its own flags
    torch.cuda.init()
    torch.empty(1, device="cuda")
library.measure_open()
STREAM = library.measure_stream()
loam.policy.load(text="""local any = loam.device {}:or_else(loam.pinned {})
return loam.policy { name = "measure", pick = function() return any end }""")

TORCH = "PyTorch's caching allocator" + (" (a fake)" if STAND_IN else "")
CUPY = "CuPy's pool, from Python" + (" (a fake)" if STAND_IN else "")
CONTENDERS = {"loam": pair_of("loam_pair")}
host = os.path.join(FOLDER, "libtorch_host.so")
if torch and os.path.exists(host):
    CONTENDERS[TORCH] = pair_of("torch_pair", ctypes.CDLL(host))
elif torch and STAND_IN:
    CONTENDERS[TORCH] = pair_of("async")
CONTENDERS["cuMemAllocAsync"] = pair_of("async")
CONTENDERS["cuMemAlloc"] = pair_of("driver")
SLOW = {"cuMemAlloc", "cuMemHostAlloc"}
FIGURES = {}  # the figures that the aims compare: FIGURES[table][contender] = a list


def note(table_name, contender, values):
    FIGURES.setdefault(table_name, {})[contender] = values
    return [contender, *map(figure, values)]


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
            ("driver", driver()), ("processor", processor()), ("kernel", platform.release()),
            ("Python", platform.python_version()), ("loam", loam.__version__)]
    rows += [(name, module.__version__ if module else "not there: it is not measured")
             for name, module in (("PyTorch", torch), ("CuPy", cupy))]
    if torch and TORCH not in CONTENDERS:
        rows.append(("PyTorch's allocator from C", "not built: PyTorch is not measured"))
    table(("what", "which"), rows)


def driver():
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=driver_version,memory.total",
                               "--format=csv,noheader"], capture_output=True, text=True, timeout=30)
        return done.stdout.strip().splitlines()[0] if done.stdout.strip() else "not told"
    except (OSError, subprocess.TimeoutExpired):
        return "there is no nvidia-smi"


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
        row = []
        for size in sizes:
            count = (200 if QUICK else 1000) if name in SLOW else 20_000 if QUICK else 100_000
            if STAND_IN:
                count = 100
            row.append(min(library.measure_pairs(
                alloc, free, ctypes.c_size_t(size), count, ctypes.c_void_p(STREAM))
                for _ in range(3 if name in SLOW else 5)))
        rows.append(note("pairs", name, row))
        give_all_back()
    print("Allocate and free on one stream, ns a pair:\n")
    table(["", *map(text_of, sizes)], rows)


def from_python():
    """Yields CuPy's pool, which only Python can call, and loam as CuPy calls it."""
    yield CUPY, cupy.get_default_memory_pool().malloc
    if not STAND_IN:
        yield "loam.cupy.allocator, from Python", loam.cupy.allocator


def python_random(malloc, largest, most, count):
    """Runs the mix of measure_random from Python: with other numbers, but equal chances."""
    draw, live, held = random.Random(1), [], 0
    start = time.perf_counter_ns()
    try:
        for _ in range(count):
            size = draw.randint(1, largest)
            if not live or (draw.random() < 0.5 and held + size <= most):
                live.append((malloc(size), size))
                held += size
            else:
                which = draw.randrange(len(live))
                live[which], live[-1] = live[-1], live[which]
                held -= live.pop()[1]
    except Exception as error:  # of a class of each library's own
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return -1
    return (time.perf_counter_ns() - start) / count


def python_pairs():
    """Prints a table of the pools that Python calls."""
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
    count = 100 if STAND_IN else 20_000
    rows = [[name, *(figure(take(malloc, size, count)) for size in sizes)]
            for name, malloc in from_python()]
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
    for name, malloc in from_python() if cupy else ():
        row = [name]
        for largest, count in shapes:
            row.append(figure(python_random(malloc, largest, total // 100 * 80, count)))
            give_all_back()
        rows.append(row)
    print("A random mix (sizes even up to the largest, at most 80 % of the memory), ns a step:\n")
    table(["", *(f"{text_of(largest)}, {count} steps" for largest, count in shapes)], rows)


def read_trace(path):
    """Returns a trace: its first line, its events, counts of blocks and streams, and its peak."""
    names, size_of, stream_of, events = {}, [], [], []
    with open(path) as lines:
        origin = next(lines).strip("# \n")
        for line in lines:
            word, *numbers = line.split()
            if word == "alloc":
                names[numbers[0]] = len(size_of)
                events.append((len(size_of), int(numbers[1]), int(numbers[2])))
                size_of.append(int(numbers[1]))
                stream_of.append(int(numbers[2]))
            elif word == "free":
                block = names.pop(numbers[0])
                events.append((block, -1, stream_of[block]))
    events += [(block, -1, stream_of[block]) for block in names.values()]
    live = peak = 0
    for block, size, _ in events:
        live += size if size >= 0 else -size_of[block]
        peak = max(peak, live)
    return origin, events, len(size_of), 1 + max(stream_of), peak


def python_replay(events, blocks):
    """Replays a trace with CuPy's pool on one stream. Returns ns per event, and most bytes."""
    pool, held, most = cupy.get_default_memory_pool(), [None] * blocks, 0
    start = time.perf_counter_ns()
    for block, size, _ in events:
        held[block] = pool.malloc(size) if size >= 0 else None
    spent = (time.perf_counter_ns() - start) / len(events)
    give_all_back()
    for block, size, _ in events:
        held[block] = pool.malloc(size) if size >= 0 else None
        most = max(most, pool.total_bytes())
    give_all_back()
    return spent, most


def replay_by(name, events, flat, blocks, streams):
    """Replays a trace. Returns nanoseconds per event, and the most bytes that were reserved."""
    alloc, free = CONTENDERS[name]
    give_all_back()
    if torch:
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_reserved() if torch else 0
    played = flat, ctypes.c_size_t(len(events)), blocks, streams
    spent = library.measure_replay(alloc, free, *played)
    if name == "loam":
        give_all_back()
        held = library.measure_loam_reserved(*played)
    elif name == "cuMemAllocAsync":
        held = library.measure_async_reserved(0)
    else:
        held = torch.cuda.max_memory_reserved() - before
    give_all_back()
    return spent, held


def replay(path):
    origin, events, count, lines, peak = read_trace(path)
    flat = (ctypes.c_int64 * (3 * len(events)))(*(n for event in events for n in event))
    blocks = (ctypes.c_void_p * count)()
    streams = (ctypes.c_void_p * lines)(STREAM, *(library.measure_stream()
                                                  for _ in range(lines - 1)))
    rows = []

    def row(name, spent, held):
        ratio = held / peak if spent >= 0 and held else -1
        FIGURES.setdefault("reserved", {}).setdefault(name, []).append(ratio)
        rows.append([name, figure(spent), text_of(held) if ratio > 0 else "no memory",
                     f"{ratio:.3f}" if ratio > 0 else "-"])
    for name in CONTENDERS:
        if name not in SLOW:
            row(name, *replay_by(name, events, flat, blocks, streams))
    if cupy:
        try:
            row(CUPY, *python_replay(events, count))
        except Exception as error:  # of a class of CuPy's own
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            row(CUPY, -1, 0)
        give_all_back()
    print(f"A trace {origin}: {len(events)} events, {lines} streams, peak live {text_of(peak)}:\n")
    table(["", "ns an event", "reserved", "reserved ÷ peak live"], rows)


def pinned():
    contenders = {"loam": pair_of("pinned"), "cuMemHostAlloc": pair_of("host")}
    sizes = [4 * KIB, MIB] if STAND_IN else [4 * KIB, 64 * KIB, MIB, 16 * MIB, 256 * MIB]
    rows = []
    for name, (alloc, free) in contenders.items():
        count = 20 if name in SLOW or STAND_IN else 10_000
        rows.append(note("pinned", name, [min(library.measure_pairs(
            alloc, free, ctypes.c_size_t(size), count, None) for _ in range(3))
            for size in sizes]))
    print("Pinned memory, ns a pair:\n")
    table(["", *map(text_of, sizes)], rows)


# ---- Aims

def ratios(name, over, under):
    """Returns the ratio for each column where both contenders exist and had memory."""
    rows = FIGURES.get(name, {})
    return [a / b for a, b in zip(rows.get(over, ()), rows.get(under, ())) if a > 0 and b > 0]


def aim(words, values, most=None, least=None):
    if not values:
        return [words, "-", "not measured"]
    worst = max(values) if least is None else min(values)
    reached = worst <= most if least is None else worst >= least
    return [words, f"{worst:.3g}", "reached" if reached else "missed"]


def aims():
    mine = FIGURES.get("reserved", {}).get("loam", [])
    theirs = FIGURES.get("reserved", {}).get(TORCH, [])
    needs_more = [a for a, b in zip(mine, theirs) if a > 0 and b > 1.05]
    rows = [
        aim("a pair at most 100 ns, 256 B to 1 GiB: the longest",
            [ns for ns in FIGURES["pairs"]["loam"] if ns > 0], most=100),
        aim("at most half of PyTorch's caching allocator: the largest ratio",
            ratios("pairs", "loam", TORCH), most=0.5),
        aim("10 times as fast as cuMemAllocAsync: the least ratio",
            ratios("pairs", "cuMemAllocAsync", "loam"), least=10),
        aim("reserved at most 1.05 of the peak where PyTorch needs more: the largest", needs_more,
            most=1.05),
        aim("pinned memory 100 times as cheap as cuMemHostAlloc: the least ratio",
            ratios("pinned", "cuMemHostAlloc", "loam"), least=100),
    ]
    if STAND_IN:
        rows = [[words, worst, f"{verdict}, which says nothing on the stand-in"]
                for words, worst, verdict in rows]
    print("Aims:\n")
    table(["", "worst", ""], rows)


machine()
pairs()
if cupy:
    python_pairs()
random_mix()
for trace in sorted(glob.glob(os.path.join(FOLDER, "*.trace"))):
    replay(trace)
pinned()
aims()
