#!/usr/bin/python3
"""The mean of numbers that MPI ranks hold, with mpi4py and NumPy, under loam.

Rank r has r + 1 MiB of numbers, in memory that the policy chooses. With an argument, the program
works for so many seconds, so that the policy can be edited.

    mpirun -n 4 loam run --watch --policy prod.lua -- /usr/bin/python3 mean.py 60
"""
import sys
import time

import numpy
from mpi4py import MPI

world = MPI.COMM_WORLD
seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0
end = time.monotonic() + seconds
while True:
    numbers = numpy.full((world.rank + 1) << 17, float(world.rank))
    total, count = world.allreduce(numbers.sum()), world.allreduce(numbers.size)
    if not world.bcast(time.monotonic() < end):
        break
    time.sleep(0.01)
if world.rank == 0:
    print(f"{world.size} ranks, mean of {count} numbers: {total / count}")
