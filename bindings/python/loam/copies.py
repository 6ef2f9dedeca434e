"""Copies of Blocks and Arrays, for pickle and the module copy.

The C extension names these functions. A copy has memory of its own, under the tag of the original.
"""

from __future__ import annotations

from typing import Any

from ._loam import Array, Block

__all__ = ["array", "block"]


def block(data: bytes, tag: str) -> Block:
    """Returns a Block with a copy of `data`."""
    made = Block(len(data), tag)
    view: Any = made
    memoryview(view)[:] = data
    return made


def array(type: str, value: Any, tag: str) -> Array:
    """Returns an Array of a type that holds `value`."""
    made = Array(type, tag=tag)
    made[()] = value
    return made
