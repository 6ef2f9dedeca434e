"""Figures of live memory by tag and strategy, and the owner of an array's memory."""

from __future__ import annotations

import numbers
from typing import Any, Iterable, NamedTuple

from . import _loam

__all__ = ["BlockCount", "Owner", "block_leaks", "block_stats", "owner", "stats", "totals"]

_KEYS = {"tag": 1, "strategy": 2, "generation": 4}


class Owner(NamedTuple):
    """The owner of a block of memory.

    tag, file, func, module, line: the purpose of the memory and, if known, the code that
        allocated it.
    strategy, kind, handler: the strategy that served it, its kind ("host", "device", ...), and
        what made the block ("loam", "system", "driver", or a handler's name).
    generation: the number of the policy that decided.
    address, size: where the block begins, and its usable bytes.
    device, stream: the GPU and the stream it belongs to; device is -1 for host memory that no GPU
        uses.
    handler_version: the version of the handler (NEP 49) that made the block; 0 if none did.
    """

    tag: str
    file: str
    func: str
    module: str
    line: int
    strategy: str
    kind: str
    handler: str
    generation: int
    address: int
    size: int
    device: int
    stream: int
    handler_version: int


def stats(by: Iterable[str] = ("tag", "strategy")) -> list[dict[str, Any]]:
    """Returns rows of live and total bytes and blocks; the row with most live bytes comes first.

    Each row is a dictionary, so pandas.DataFrame(loam.stats()) is a table. `by` names the columns
    to group by: "tag", "strategy" and "generation". Rows by generation have no totals.
    """
    keys = 0
    for key in (by,) if isinstance(by, str) else by:
        if key not in _KEYS:
            raise ValueError(f"by {key!r}: it is of {', '.join(_KEYS)}")
        keys |= _KEYS[key]
    return _loam.stats_by(keys)


def totals() -> dict[str, int]:
    """Returns the figures of the process, such as live_bytes, reserved_bytes and bad_frees."""
    return _loam.totals()


class BlockCount(NamedTuple):
    """How many blocks of a kind were ever made, and how many of them have ended."""

    made: int
    ended: int


def block_stats() -> dict[str, BlockCount]:
    """Returns the counts of blocks with counted references, by their kind (see Block.kind)."""
    return {kind: BlockCount(*counts) for kind, counts in _loam.block_stats().items()}


def block_leaks() -> list[dict[str, Any]]:
    """Returns a row for each tag that has live blocks: its tag, blocks and bytes.

    Counts the blocks of the whole process, in C and in Python. Raises StateError unless the engine
    was started with leaks (loam.start(leaks=True) or LOAM_LEAKS=1).
    """
    return _loam.block_leaks()


def _address(of: Any) -> int:
    if isinstance(of, numbers.Integral):  # NumPy's integers too: they also have an interface
        address = int(of)
        return address if 0 <= address < 2**64 else 0  # no block is there
    if isinstance(of, _loam.Array):  # an array of rows, text or pointers has no buffer
        return of.address
    pointer = getattr(of, "data_ptr", None)  # PyTorch: a tensor with a gradient has no interface
    if callable(pointer):
        return int(pointer())
    for name in ("__array_interface__", "__cuda_array_interface__"):
        interface = getattr(of, name, None)
        if interface is not None and interface.get("data") is not None:
            return int(interface["data"][0] or 0)
    return _loam.address_of(of)


def owner(of: Any) -> Owner | None:
    """Returns the owner of the memory of an array, a tensor, a buffer or an address.

    Returns None if the address is in no live block of loam. A view has the owner of the memory that
    it shows.
    """
    found = _loam.owner(_address(of))
    return None if found is None else Owner(*found)
