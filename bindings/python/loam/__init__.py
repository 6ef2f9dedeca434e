"""loam decides, by a policy, what memory each allocation of a program gets.

    import loam
    loam.policy.watch("prod.lua")
    loam.numpy.install()
    with loam.tag("training.batch"):
        batch = numpy.empty((64, 1000))
    print(loam.owner(batch).strategy, loam.stats())

A policy is a short Lua file that says, for each tag and size, what memory an allocation gets:
its alignment, NUMA node, huge pages, guard pages. It can be edited while the program runs.

loam.numpy, loam.numba, loam.cupy and loam.torch give loam's memory to these libraries. loam.policy
loads and inspects policies. Functions may be called from any thread. They raise loam.Error or one
of its subclasses.
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
    """Starts the engine with these settings. Optional: without it, the first use starts the engine.

    policy: the policy file to load; None means the built-in default policy.
    watch: load the file again whenever it changes.
    control: whether the command `loam status` finds this process; None lets LOAM_CONTROL decide.
    lenient: a refused policy is an event, not an exception.
    guard_report: before a fault in guarded memory ends the process, write to standard error whose
        block was overrun.
    leaks: write to standard error which blocks are still live at exit.

    Raises StateError if the engine is already started, PolicyError if the policy is refused, and
    FileError if the file cannot be read.
    """
    events.start()
    try:
        _loam.start(policy, watch, 0 if control is None else 1 if control else -1, lenient,
                    guard_report, leaks)
    finally:
        events.deliver()


def __getattr__(name: str) -> Any:
    """Imports the modules for other libraries at first use, because they import those libraries."""
    if name in ("cupy", "numba", "numpy", "torch"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'loam' has no attribute {name!r}")
