"""Events as records of `logging`, under the logger "loam".

A policy that went live is of level INFO; a watch that degraded, a tag that could not be compiled,
or what a strategy did not get, WARNING; a policy refused, or a bad free, ERROR. Each record has
the event itself as `record.event`.

Loading or watching a policy, or installing loam in NumPy, starts the listening: a daemon thread
that waits where events arrive, so that neither a free nor a reload ever waits for Python.
What happens once the interpreter is gone, such as leaks told at exit (LOAM_LEAKS=1), and faults of
guarded memory, are lines on standard error.

Under `loam run` the preload library tells events, and nothing is logged here.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from typing import NamedTuple

from . import _loam

__all__ = ["Event", "deliver", "logger", "start"]

logger = logging.getLogger("loam")

_KINDS = {
    1: ("policy_live", logging.INFO),
    2: ("policy_refused", logging.ERROR),
    3: ("tag_refused", logging.WARNING),
    4: ("bad_free", logging.ERROR),
    5: ("watch", logging.WARNING),
    6: ("control", logging.WARNING),
    7: ("fault", logging.CRITICAL),
    8: ("leak", logging.WARNING),
    9: ("manager", logging.WARNING),
    10: ("moved", logging.INFO),
    11: ("shortfall", logging.WARNING),
    12: ("environment", logging.WARNING),
}


class Event(NamedTuple):
    """What happened: `kind` is "policy_live", "policy_refused", "tag_refused", "bad_free", ..."""

    kind: str
    generation: int
    pointer: int
    message: str


_starting = threading.Lock()
_delivering = threading.Lock()
_thread: threading.Thread | None = None


def deliver() -> None:
    """Logs, before it returns, what has happened up to now."""
    with _delivering:
        for number, generation, pointer, message in _loam.events_take():
            kind, level = _KINDS.get(number, ("event", logging.WARNING))
            event = Event(kind, generation, pointer or 0, message)
            logger.log(level, "%s", message, extra={"event": event})


def _listen() -> None:
    while True:
        _loam.events_wait()
        deliver()


def start() -> None:
    """Begins to listen; again, nothing."""
    global _thread
    with _starting:
        if _thread is None and _loam.events_start():
            _thread = threading.Thread(target=_listen, name="loam-events", daemon=True)
            _thread.start()


def _after_fork() -> None:
    """The child has neither the thread nor, perhaps, the locks; what is waiting is the parent's."""
    global _thread, _starting, _delivering
    _starting, _delivering = threading.Lock(), threading.Lock()
    _loam.events_take()
    if _thread is not None:
        _thread = None
        start()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(deliver)
