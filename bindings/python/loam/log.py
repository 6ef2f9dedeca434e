"""A log of allocations: a row for each block that is allocated, resized or freed."""

from __future__ import annotations

import csv
import io
import threading
import time
from typing import Any, NamedTuple, Optional

from . import _loam, hooks
from .figures import Owner, owner

__all__ = ["AllocationLog", "LogRow"]


class LogRow(NamedTuple):
    """A row of an allocation log.

    time: seconds since the log was started.
    action: "allocate", "resize" or "free".
    address: of the block; after a resize its new address, and `old` is the address before. In all
        other rows `old` is 0.
    size: the requested bytes. The row of a free has the size that the log knows of the block, or 0
        for a block that was allocated before the log was started.
    device, stream: as in loam.Owner; device is -1 for memory of the host.
    tag, strategy: the tag of the block, and the strategy of the policy that served it. Both are ""
        in the row of a free, if the block was allocated before the log was started.
    thread: the number of the thread, as threading.get_ident() gives it.
    """

    time: float
    action: str
    address: int
    old: int
    size: int
    device: int
    stream: int
    tag: str
    strategy: str
    thread: int


class AllocationLog:
    """Records all allocations of the process between start() and stop(), or inside `with`.

        with loam.AllocationLog() as log:
            a = loam.Block(1000, "frame")
            del a
        print(log.csv())

    `rows` holds a LogRow for each event; csv() gives them as text. The log is for debugging: it
    calls Python for each block and keeps all rows in memory. It uses the process's one
    on_memory() function. A function that was set before is called too, and is set again by stop().
    Logs may stop in any order.

    Memory that a GPU may still use is freed in a batch later, and its rows come at that time. A row
    is made after the operation. So if one thread frees a block and another thread gets its address
    immediately, the row of the new block may come first; the row of the free then has the tag and
    size of the new block.
    """

    rows: list[LogRow]

    def __init__(self) -> None:
        self.rows = []
        self._live: dict[int, tuple[int, Optional[Owner]]] = {}
        self._started = 0.0
        self._is_running = False
        self._is_hooked = False  # _note is set as the function, or a later function calls it
        self._before: Optional[hooks.MemoryHook] = None

    def start(self) -> AllocationLog:
        """Starts the log. Raises RuntimeError if it runs already, and like on_memory()."""
        if self._is_running:
            raise RuntimeError("the log is running already")
        self._started = self._started or time.perf_counter()
        if not self._is_hooked:
            # Noted first, because an interrupt may end this function after each call.
            self._note_before(_loam.memory_hook())
            self._note_before(hooks.on_memory(self._note))
        self._is_hooked = self._is_running = True
        return self

    def stop(self) -> None:
        """Stops the log; its rows stay. Does nothing if it does not run."""
        if self._is_running:
            self._is_running = False
            self._remove()

    def _note_before(self, function: Optional[hooks.MemoryHook]) -> None:
        if function != self._note:  # else an interrupt ended an earlier start() or stop()
            self._before = function

    def _remove(self) -> None:
        """Sets the function of before again, unless a later function is set, which may call this
        log's. A log that stopped earlier is removed too, if that is possible now."""
        if _loam.memory_hook() != self._note:
            return
        self._is_hooked = False  # an interrupt may end this function after each line
        hooks.on_memory(self._before)
        earlier = getattr(self._before, "__self__", None)
        self._before = None
        if isinstance(earlier, AllocationLog) and not earlier._is_running:
            earlier._remove()

    def __enter__(self) -> AllocationLog:
        return self.start()

    def __exit__(self, *exception: Any) -> None:
        self.stop()

    def csv(self) -> str:
        """Returns the rows as CSV, with a line of names; addresses and streams are hexadecimal."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(LogRow._fields)
        for row in list(self.rows):
            written = row._asdict() | {"time": f"{row.time:.6f}", "address": hex(row.address),
                                       "old": hex(row.old), "stream": hex(row.stream)}
            writer.writerow(written.values())
        return text.getvalue()

    def _note(self, old: int, new: int, size: int) -> None:
        if self._is_running:
            self._add_row(old, new, size)
        if self._before is not None:
            self._before(old, new, size)

    def _add_row(self, old: int, new: int, size: int) -> None:
        now = time.perf_counter() - self._started
        action = "allocate" if not old else "resize" if new else "free"
        known = self._live.pop(old, (0, None)) if old else (0, None)
        if new:
            known = self._live[new] = (size, owner(new))
        size, whose = known
        self.rows.append(LogRow(
            now, action, new or old, old if new else 0, size,
            whose.device if whose else -1, whose.stream if whose else 0,
            whose.tag if whose else "", whose.strategy if whose else "", threading.get_ident()))
