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

import importlib as _importlib
import os as _os
import sys as _sys
import typing as _typing

from . import _loam, children, events, policy
from ._loam import Arena, Array, Block, nrt_api, trim
from .devices import DeviceInfo, device_count, device_info, device_keep, device_trim
from .errors import Error, FileError, InvalidError, NoMemoryError, PolicyError, StateError
from .events import Event, on_event
from .figures import BlockCount, Owner, block_leaks, block_stats, owner, stats, totals
from .hooks import get_handler, on_block, on_memory, register_handler, set_handler
from .log import AllocationLog, LogRow
from .sleeping import asleep, sleep, wake
from .tags import current_tag, tag

__all__ = ["AllocationLog", "Arena", "Array", "Block", "BlockCount", "DeviceInfo", "Error", "Event",
           "FileError", "InvalidError", "LogRow", "NoMemoryError", "Owner", "PolicyError",
           "StateError", "asleep", "block_leaks", "block_stats", "current_tag", "device_count",
           "device_info", "device_keep", "device_trim", "events", "get_handler", "include_path",
           "nrt_api", "on_block", "on_event", "on_memory", "owner", "policy", "register_handler",
           "set_handler", "sleep", "start", "stats", "tag", "totals", "tracemalloc_domain", "trim",
           "wake"]

__version__ = _loam.version()

# The modules for other libraries. They are imported at first use, because they import those
# libraries; so `from loam import *` leaves them out.
_LATER = ("cupy", "dask", "numba", "numpy", "torch")

# The domain of Blocks, Arrays and Arenas in tracemalloc. NumPy's arrays are in NumPy's domain.
tracemalloc_domain = _loam.TRACEMALLOC_DOMAIN


def start(policy: str | _os.PathLike[str] | None = None, *, watch: bool = False,
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
    settings = (0 if control is None else 1 if control else -1, lenient, guard_report, leaks)
    with events.reporting():
        _loam.start(policy, watch, *settings)
    children.note_settings(*settings)
    children.note_live()


def include_path() -> str:
    """Returns the folder of loam.h, for C code that uses loam: cc -I FOLDER.

    The addresses of nrt_api() and of loam.numba.allocator() are of types that loam.h declares.
    """
    return _os.path.join(_os.path.dirname(_os.path.abspath(__file__)), "include")


if _typing.TYPE_CHECKING:  # type checkers take any name for a right one where they see __getattr__
    from . import cupy as cupy
    from . import dask as dask
    from . import numba as numba
    from . import numpy as numpy
    from . import torch as torch
else:
    def __getattr__(name: str) -> _typing.Any:
        """Imports a module for another library at its first use."""
        if name in _LATER:
            return _importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module 'loam' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_LATER, "__version__"])


# Without multiprocessing there is no child yet, and loading it would cost 9 ms.
if "multiprocessing.process" in _sys.modules:
    children.prepare()
