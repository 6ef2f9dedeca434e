"""What is live, by tag and strategy, and whose memory an array is."""

from __future__ import annotations

from typing import Any, Iterable, NamedTuple

from . import _loam

__all__ = ["Owner", "owner", "stats", "totals"]

_KEYS = {"tag": 1, "strategy": 2, "generation": 4}


class Owner(NamedTuple):
    """Whose memory an address is. `device` is -1 where none has to do with it."""

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


def stats(by: Iterable[str] = ("tag", "strategy")) -> list[dict[str, Any]]:
    """A dictionary a row, as pandas.DataFrame takes them: live and total bytes and blocks.

    `by` is of "tag", "strategy" and "generation"; by generation there are no totals.
    """
    keys = 0
    for key in (by,) if isinstance(by, str) else by:
        if key not in _KEYS:
            raise ValueError(f"by {key!r}: it is of {', '.join(_KEYS)}")
        keys |= _KEYS[key]
    return _loam.stats_by(keys)


def totals() -> dict[str, int]:
    """The figures of the whole process."""
    return _loam.totals()


def _address(of: Any) -> int:
    if isinstance(of, int):
        return of
    pointer = getattr(of, "data_ptr", None)  # PyTorch's; what needs a gradient has no other
    if callable(pointer):
        return int(pointer())
    for name in ("__array_interface__", "__cuda_array_interface__"):
        interface = getattr(of, name, None)
        if interface is not None and interface.get("data") is not None:
            return int(interface["data"][0] or 0)
    return _loam.address_of(of)


def owner(of: Any) -> Owner | None:
    """Whose memory an array, a buffer or an address is; None if it is in no live block of loam's.

    A view's owner is that of the memory it looks at.
    """
    found = _loam.owner(_address(of))
    return None if found is None else Owner(*found)
