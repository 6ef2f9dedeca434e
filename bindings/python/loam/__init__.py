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
from typing import TYPE_CHECKING, Any

from . import events, policy
from ._loam import Array, Block, trim
from ._loam import version as _version
from .errors import Error, FileError, InvalidError, NoMemoryError, PolicyError, StateError
from .figures import Owner, owner, stats, totals
from .tags import current_tag, tag

if TYPE_CHECKING:
    from . import numba, numpy

__all__ = ["Array", "Block", "Error", "FileError", "InvalidError", "NoMemoryError", "Owner",
           "PolicyError", "StateError", "current_tag", "events", "numba", "numpy", "owner",
           "policy", "stats", "tag", "totals", "trim"]

__version__ = _version()


def __getattr__(name: str) -> Any:
    """loam.numpy and loam.numba, imported when they are asked for: both bring their namesakes."""
    if name in ("numba", "numpy"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'loam' has no attribute {name!r}")
