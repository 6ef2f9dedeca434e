"""numpy - compares the cost of NumPy's arrays under loam with NumPy's own allocator, in one run.

    tests/bench/numpy.py [--quick]

Uses the package in build/ (cmake -B build && cmake --build build), or in the folder that
LOAM_PYTHON_PACKAGE names. The contenders take turns in one process, by loam.numpy.install() and
uninstall(). Each figure is the least of the rounds. Each ratio is the median of the ratios of the
rounds, so that a noisy machine disturbs all contenders alike.
"""

import argparse
import os
import statistics
import sys
import timeit

PLAIN = """
local plain = loam.host { name = "plain" }
return loam.policy { name = "plain", pick = function(_) return plain end }
"""

# A policy like policies/numpy-huge-pages.lua.
HUGE = """
local plain  = loam.host { name = "plain" }
local arrays = loam.host { name = "arrays", align = 64, huge = "thp" }
return loam.policy { name = "huge", pick = function(req)
  if req.size >= 4 * loam.MiB then return arrays:or_else(plain) end
  return plain
end }
"""

SIZES = [64, 256, 1024, 4096, 16384, 65536, 262144, 1048576]


def clock(function, number):
    """Returns the seconds of a call."""
    return min(timeit.repeat(function, number=number, repeat=3)) / number


def take_turns(contenders, function, number, rounds):
    """Returns for each contender, a pair (enter, leave): (least seconds of a call, median ratio to
    the first contender)."""
    times = [[] for _ in contenders]
    for _ in range(rounds):
        for (enter, leave), seen in zip(contenders, times):
            enter()
            function()
            seen.append(clock(function, number))
            leave()
    return [(min(seen), statistics.median(s / first for s, first in zip(seen, times[0])))
            for seen in times]


def line(name, results, unit, scale):
    figures = "".join(f"{least * scale:10.1f}" for least, _ in results)
    ratios = "".join(f"{ratio:10.2f}" for _, ratio in results[1:])
    print(f"{name:>14}{figures} {unit}{ratios}", flush=True)


def nothing():
    pass


def bench(rounds, number):
    import numpy
    import loam

    def under(text, **options):
        def enter():
            loam.policy.load(text=text)
            loam.numpy.install(**options)
        return enter, loam.numpy.uninstall

    contenders = [(nothing, nothing), under(PLAIN), under(PLAIN, sites=True)]
    for name, make in (("empty", numpy.empty), ("zeros", numpy.zeros)):
        print(f"\nnumpy.{name}, made and dropped: NumPy's own, loam, loam naming sites; ratios")
        for size in SIZES:
            count = size // 8
            results = take_turns(contenders, lambda: make(count), max(number * 100 // size, 100)
                                 if name == "zeros" else number, rounds)
            line(f"{size} B", results, "ns", 1e9)

    contenders = [(nothing, nothing), under(PLAIN), under(HUGE)]
    print("\nfirst touch: NumPy's own, loam's default pages, loam's huge-page policy; ratios")
    for mib in (64, 256):
        count = mib << 17

        def fill():
            array = numpy.empty(count)
            array.fill(1)

        def compute():
            a = numpy.ones(count // 4)
            return (a * 2 + a).sum()

        def keep():
            return [numpy.full(count // 8, 1.0) for _ in range(8)]
        for name, work in (("fill", fill), ("temporaries", compute), ("eight kept", keep)):
            line(f"{mib} MiB {name}", take_turns(contenders, work, 3, rounds), "ms", 1e3)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds: under a minute")
    given = parser.parse_args()
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sys.path[0] = os.environ.get("LOAM_PYTHON_PACKAGE", os.path.join(root, "build", "python"))
    os.environ.setdefault("LOAM_CONTROL", "0")
    bench(3 if given.quick else 9, 2000 if given.quick else 20000)


if __name__ == "__main__":
    main()
