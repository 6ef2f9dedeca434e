"""workload.py - a NumPy program that runs for a limited time: matrix products and sorts for a
number of seconds, and longer while the file that the second argument names exists.

The program does not use loam. It keeps one array of its first round to the end and makes new arrays
in each round. It prints the addresses of both, so that a script can query the kernel about them.
"""
import os
import sys
import time

import numpy as np

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 15.0
HOLD = sys.argv[2] if len(sys.argv) > 2 else ""
SIDE = 1000                 # 1000 x 1000 doubles: 8 MB a matrix
KEYS = 2_000_000            # 16 MB to sort


def main():
    rng = np.random.default_rng(1)
    first = rng.random(3_000_000)      # 24 MB, kept to the end
    words = {str(i): [i] for i in range(20_000)}
    start = time.monotonic()
    rounds, checksum = 0, 0.0
    while time.monotonic() - start < SECONDS or os.path.exists(HOLD):
        a = rng.random((SIDE, SIDE))
        b = a @ a.T
        keys = rng.random(KEYS)
        keys.sort()
        if not bool((keys[1:] >= keys[:-1]).all()):
            sys.exit("workload: the sort is wrong")
        if abs(b[0, 0] - float((a[0] * a[0]).sum())) > 1e-6:
            sys.exit("workload: the product is wrong")
        checksum += float(b.trace()) + float(keys[KEYS // 2])
        words[str(rounds)] = [rounds]
        fresh = np.full(3_000_000, rounds, dtype=np.float64)   # 24 MB, new in each round
        rounds += 1
        print(f"{time.monotonic() - start:5.1f} s  round {rounds:3d}  "
              f"first {first.ctypes.data:#x}  fresh {fresh.ctypes.data:#x}", flush=True)
    print(f"done: {rounds} rounds, sorted and multiplied correctly, "
          f"mean {checksum / rounds:.1f}", flush=True)


main()
