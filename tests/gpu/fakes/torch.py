"""torch - a fake for tests/gpu/measure.py on the stand-in, in place of PyTorch. It does nothing."""

import types

__version__ = "none: a fake"
cuda = types.SimpleNamespace(
    init=lambda: None, empty_cache=lambda: None, reset_peak_memory_stats=lambda: None,
    memory_reserved=lambda: 0, max_memory_reserved=lambda: 1)


def empty(count, device):
    return [count, device]
