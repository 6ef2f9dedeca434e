"""Events of loam as records of Python's `logging`, under the logger "loam".

The level is INFO when a policy goes live and when live memory was moved. It is WARNING when
watching a file degrades, when there is no memory for the plan of a new site, and when a strategy
does not get the memory it asks for. It is ERROR for a refused policy and for a bad free. Each
record has the event as `record.event`.

loam.start(), loading or watching a policy, and loam.numpy.install() start a daemon thread that
waits for events and logs them. So a free or a reload never waits for Python. Events after the end
of the interpreter, such as leaks at exit (LOAM_LEAKS=1), and faults in guarded memory are written
to standard error instead.

Under `loam run` the preload library reports events, and nothing is logged here.
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
    13: ("unserved", logging.WARNING),
    12: ("environment", logging.WARNING),
}


class Event(NamedTuple):
    """An event of loam.

    `kind` is "policy_live", "policy_refused", "tag_refused", "bad_free", "watch", "control",
    "fault", "leak", "manager", "moved", "shortfall", "environment" or "unserved".
    `generation` is the policy's number. `pointer` is the address of a bad free, otherwise 0.
    `message` is for people.
    """

    kind: str
    generation: int
    pointer: int
    message: str


_starting = threading.Lock()
_delivering = threading.Lock()
_thread: threading.Thread | None = None


def deliver() -> None:
    """Logs all events that have happened so far, before it returns."""
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
    """Starts the thread that logs events. Does nothing if it is running."""
    global _thread
    with _starting:
        if _thread is None and _loam.events_start():
            _thread = threading.Thread(target=_listen, name="loam-events", daemon=True)
            _thread.start()


def _after_fork() -> None:
    """Starts again in a forked child, which has no thread and may have inherited held locks.

    Events that were waiting belong to the parent and are dropped.
    """
    global _thread, _starting, _delivering
    _starting, _delivering = threading.Lock(), threading.Lock()
    _loam.events_take()
    if _thread is not None:
        _thread = None
        start()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(deliver)
