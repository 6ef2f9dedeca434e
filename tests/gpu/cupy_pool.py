"""cupy_pool - compares loam.cupy with CuPy's own pool: instructions, and bytes reserved on traces.

    cupy_pool.py pair SIZE TIMES cupy|loam      allocates and frees TIMES times, for a counter
    cupy_pool.py [--streams] cupy|loam FILE...  prints, for traces, the most reserved bytes over the
                                                most live bytes (tests/bench/trace/derive.lua makes
                                                traces)

Runs on a GPU, or on the stand-ins as in tests/bindings/python/_cupy_tests.py: LD_PRELOAD names the
runtime, LOAM_CUDA_DRIVER the driver. With --streams, each stream of a trace is a stream of CuPy;
without it, all are the default stream. To count the instructions of a pair, run

    valgrind --tool=callgrind python3 tests/gpu/cupy_pool.py pair 4096 N cupy

with N of 1,000 and of 6,000. The difference of the two counts is the cost of 5,000 pairs.
"""

import os
import sys

import cupy

POOL = cupy.get_default_memory_pool()


def allocator_of(who):
    if who == "cupy":
        return POOL.malloc
    import loam
    loam.policy.load(text="""local device = loam.device {}
                             return loam.policy { pick = function() return device end }""")
    return loam.cupy.allocator


def reserved(who):
    if who == "cupy":
        return POOL.total_bytes()
    from loam import _loam
    return _loam.device_info(0)["reserved"]


def pair(size, times, who):
    malloc = allocator_of(who)
    for _ in range(times):
        malloc(size)


def replay(path, who, has_streams):
    """Returns the most bytes that were reserved, and the most that were live."""
    malloc, held, sizes, streams = allocator_of(who), {}, {}, {"0": cupy.cuda.Stream.null}
    live = peak = most = 0
    with open(path) as lines:
        for line in lines:
            word, *numbers = line.split()
            if word == "alloc":
                name, size, number = numbers[0], int(numbers[1]), numbers[2] if has_streams else "0"
                if number not in streams:
                    streams[number] = cupy.cuda.Stream(non_blocking=True)
                with streams[number]:
                    held[name] = malloc(size)
                sizes[name] = size
                live += size
                peak, most = max(peak, live), max(most, reserved(who))
            elif word == "free":
                del held[numbers[0]]
                live -= sizes.pop(numbers[0])
    return most, peak


def main():
    arguments = sys.argv[1:]
    if arguments[0] == "pair":
        pair(int(arguments[1]), int(arguments[2]), arguments[3])
        return
    has_streams = arguments[0] == "--streams"
    who, *paths = arguments[has_streams:]
    for path in paths:
        most, peak = replay(path, who, has_streams)
        print(f"{os.path.basename(path)}: {who}, CuPy {cupy.__version__}: "
              f"reserved {most >> 20} MiB, live {peak >> 20} MiB, {most / peak:.3f}", flush=True)
        POOL.free_all_blocks()


if __name__ == "__main__":
    main()
