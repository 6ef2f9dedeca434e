"""Device memory that sleeps: it is given up for a while, by tag, and taken back at the same
addresses.

    loam.policy.load(text='''
        local weights = loam.device { name = "weights", pool = "sleep" }
        local rest = loam.device {}
        return loam.policy { pick = function(req)
          if req.tag:under("model") then return weights end
          return rest
        end }''')
    loam.sleep("model")        # the device has that memory free now
    loam.wake("model")         # tensors are at their addresses, with their contents

Only memory of loam.device { pool = "sleep" } can sleep. While it does, no kernel and no copy may
use it: CUDA ends the context of a program that does so. Tensors and arrays may be freed.
"""

from __future__ import annotations

import os

from . import _loam

__all__ = ["asleep", "sleep", "wake"]


def sleep(tag: str | None = None, to: str | os.PathLike[str] = "pinned") -> int:
    """Gives back the device memory of the blocks under a tag, and returns how many bytes those are.

    tag: the tag; tags under it count too. None means all tags.
    to: where the contents go: "pinned" is pinned host memory; "discard" is nowhere, so the contents
        are lost; else the path of a folder, in which a file without a name gets them.

    Waits for the work of the device. Blocks that sleep already are left alone. If it fails, all
    memory is as before: NoMemoryError is raised if there is no memory or no room on the disk,
    InvalidError if no file can be made in the folder or `to` is empty, and StateError while a
    stream is captured for a graph, or if the device memory under the tag is not of
    loam.device { pool = "sleep" }.
    """
    place = os.fspath(to)
    return _loam.device_sleep(tag, place if place in ("", "pinned", "discard")
                              else os.path.abspath(place))


def wake(tag: str | None = None) -> int:
    """Gives the sleeping blocks under a tag memory at their addresses, and their contents.

    Returns how many bytes they have. Contents that were discarded may be anything. If it fails, for
    example with NoMemoryError because the device has too little memory now, the blocks sleep on.
    """
    return _loam.device_wake(tag)


def asleep(tag: str | None = None) -> int:
    """Returns how many bytes of the blocks under a tag are asleep; None means all tags."""
    return _loam.device_asleep(tag)
