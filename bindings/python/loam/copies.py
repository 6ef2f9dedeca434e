"""Copies of Blocks and Arrays, for pickle and the module copy.

The C extension names these functions. A copy has memory of its own, under the tag of the original.
"""

from __future__ import annotations

from typing import Any

from ._loam import Array, Block

__all__ = ["array", "block", "plain"]


def _fill(made: Any, data: Any) -> None:
    """Copies the bytes of `data` to an object of this size. Both are objects with a buffer."""
    to: Any = Block.wrap(made)
    memoryview(to)[:] = Block.wrap(data)  # type: ignore[call-overload]


def block(data: Any, tag: str) -> Block:
    """Returns a Block with a copy of the bytes of `data`."""
    made = Block(memoryview(data).nbytes, tag)
    _fill(made, data)
    return made


def array(type: str, value: Any, tag: str) -> Array:
    """Returns an Array of a type that holds `value`."""
    made = Array(type, tag=tag)
    made[()] = value
    return made


def plain(type: str, data: Any, tag: str, count: int) -> Array:
    """Returns an Array of scalars with a copy of the bytes of `data`, which has `count` rows."""
    made = Array(type, tag=tag)
    if type.startswith("var "):
        made.resize(count)
    _fill(made, data)
    return made
