# train.py - the unmodified program of the manuals: an array of 76 MiB, and objects of libraries.
# The file ready.PID says that the program has them.
import hashlib
import os
import time

import numpy as np

batch = np.ones(10_000_000)
digests = [hashlib.sha256() for _ in range(100)]
seconds = float(os.environ.get("TRAIN_SECONDS", "0"))
if seconds:
    open(f"ready.{os.getpid()}", "w").close()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(0.05)
        bytearray(4096)
