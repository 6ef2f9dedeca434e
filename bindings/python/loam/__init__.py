"""loam: memory whose kind a policy decides.

    import loam
    loam.policy.watch("prod.lua")
    loam.numpy.install()
    with loam.tag("training.batch"):
        batch = numpy.empty((64, 1000))
    print(loam.owner(batch).strategy, loam.stats())

A policy is a short Lua file that says, for each tag and size, what memory an allocation gets.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from . import _loam, events, policy
from ._loam import Arena, Array, Block, trim
from ._loam import version as _version
from .errors import Error, FileError, InvalidError, NoMemoryError, PolicyError, StateError
from .figures import Owner, owner, stats, totals
from .tags import current_tag, tag

if TYPE_CHECKING:
    from . import cupy, numba, numpy, torch

__all__ = ["Arena", "Array", "Block", "Error", "FileError", "InvalidError", "NoMemoryError",
           "Owner", "PolicyError", "StateError", "cupy", "current_tag", "events", "numba", "numpy",
           "owner", "policy", "start", "stats", "tag", "torch", "totals", "trim"]

__version__ = _version()


def start(policy: str | os.PathLike[str] | None = None, *, watch: bool = False,
          control: bool | None = None, lenient: bool = False, guard_report: bool = False,
          leaks: bool = False) -> None:
    """Starts the engine with other than its defaults, before anything else asks it for memory.

    `policy` is loaded and, with `watch`, followed; with `lenient` a refusal of it is an event, not
    an exception. `control`: whether `loam status` finds the process (None: as LOAM_CONTROL says).
    `guard_report`: a fault in guarded memory first says, on standard error, whose block was
    overrun. `leaks`: blocks left at exit are told there too. StateError if it is started already.
    """
    events.start()
    try:
        _loam.start(policy, watch, 0 if control is None else 1 if control else -1, lenient,
                    guard_report, leaks)
    finally:
        events.deliver()


def __getattr__(name: str) -> Any:
    """The modules that bring their namesakes, imported when they are asked for."""
    if name in ("cupy", "numba", "numpy", "torch"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'loam' has no attribute {name!r}")
