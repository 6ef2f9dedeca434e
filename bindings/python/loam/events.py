"""Events of loam as records of Python's `logging`, under the logger "loam".

The level is INFO when a policy goes live, when live memory was moved, and for the report of
LOAM_REPORT. It is ERROR for a refused policy, for a bad free and for the last words of a process,
CRITICAL for a fault in guarded memory, and WARNING for all other events. A refusal that a call
raises as an exception is logged at DEBUG, because the exception says it already. When a request
gets no memory, its record has the reason, so the record of the strategy that failed is logged at
DEBUG too. Each record has the event as `record.event`.

loam.start(), loading or watching a policy, and loam.numpy.install() start a daemon thread that
waits for events and logs them. So a free or a reload never waits for Python. Events after the end
of the interpreter, such as leaks at exit (LOAM_LEAKS=1) and the report that LOAM_REPORT=stderr asks
for, and faults in guarded memory are written to standard error instead.

A host that wants to act on an event, such as a soft limit that was passed, gives on_event() a
function.

Under `loam run` the preload library reports events. Then nothing is logged here, and the function
of on_event() is not called.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import logging
import os
import sys
import threading
from typing import Callable, Iterator, NamedTuple

from . import _loam
from .errors import Error

__all__ = ["Event", "deliver", "logger", "on_event", "reporting", "start"]

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
    13: ("unserved", logging.WARNING),
    14: ("soft_limit", logging.WARNING),
    15: ("last_words", logging.ERROR),
    16: ("report", logging.INFO),
}


class Event(NamedTuple):
    """An event of loam.

    `kind` is "policy_live", "policy_refused", "tag_refused", "bad_free", "watch", "control",
    "fault", "leak", "manager", "moved", "shortfall", "environment", "unserved",
    "soft_limit", "last_words" or "report".
    `generation` is the policy's number. `pointer` is the address of a bad free, otherwise 0.
    `message` is for people.
    """

    kind: str
    generation: int
    pointer: int
    message: str


_callback: Callable[[Event], object] | None = None
_starting = threading.RLock()  # a signal handler may call start() while this thread has the lock
_delivering = threading.RLock()
_is_delivering = False  # with _delivering held
_waiting: collections.deque[tuple[int, int, int | None, str]] = collections.deque()  # to be logged
_raised: set[str] = set()  # texts of exceptions whose events are logged next, with _delivering held
_thread: threading.Thread | None = None
_LAST_S = 10.0  # how long the end of the interpreter waits for a callback in another thread

# Called after a policy has gone live. loam.children sets it.
_on_live: Callable[[], None] | None = None


def on_event(callback: Callable[[Event], object] | None) -> None:
    """Calls callback(event) for each event from now on, after the event is logged.

    The callback runs in the thread that logs events, soon after the event happened. It may free
    memory, load a policy and wait. While it runs, no further event is logged. An exception that
    it raises is logged as an error. The end of the program waits for it for ten seconds at most. A
    process has one callback; None removes it.

    A host that keeps a cache can shrink it before requests fail:

        def shrink(event):
            if event.kind == "soft_limit":
                cache.clear()
        loam.on_event(shrink)
    """
    global _callback
    if callback is not None and not callable(callback):
        raise TypeError(f"a callback is a function or None, not {type(callback).__name__}")
    _callback = callback
    start()


def _call(event: Event) -> None:
    callback = _callback
    if callback is None:
        return
    try:
        callback(event)
    except BaseException as error:
        # In the main thread a signal handler raises KeyboardInterrupt and SystemExit at any moment.
        # In another thread the callback itself raised them; they must not end this thread.
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and not isinstance(error, Exception):
            raise
        logger.exception("the callback of loam.on_event failed for: %s", event.message)


# The generation and the message of the last event "unserved" that was logged.
_unserved: tuple[int, str] | None = None


def _repeats(event: Event) -> bool:
    """Returns whether the event is a shortfall whose reason the record of the last unserved request
    has in the same words."""
    global _unserved
    said = (event.generation, event.message)
    if event.kind == "unserved":
        _unserved = said
    return event.kind == "shortfall" and _unserved == said


def _turn() -> contextlib.AbstractContextManager[object]:
    """Returns the lock for delivering.

    While the interpreter ends, it returns no lock. Only this thread runs then, and another thread
    may have ended with the lock.
    """
    if sys.is_finalizing():
        return contextlib.nullcontext()
    return _delivering


def deliver(raised: str | None = None) -> None:
    """Logs all events that have happened so far, before it returns.

    Inside a callback it logs nothing: the thread logs the events after the callback has returned.
    `raised` is the text of an exception: the event of that refusal is logged at DEBUG. If logging
    raises an exception, the later events wait for the next call.
    """
    global _is_delivering
    with _turn():
        if raised is not None:
            _raised.add(raised)
        if _is_delivering:
            return
        _is_delivering = True
        try:
            texts = set(_raised)
            _raised.clear()
            _waiting.extend(_loam.events_take())
            while _waiting:
                _log(*_waiting.popleft(), texts)
        finally:
            _is_delivering = False


def _log(number: int, generation: int, pointer: int | None, message: str, raised: set[str]) -> None:
    """Logs an event and calls the callback."""
    kind, level = _KINDS.get(number, ("event", logging.WARNING))
    if kind == "policy_refused" and message in raised:
        level = logging.DEBUG
    if kind == "policy_live" and _on_live:
        _on_live()
    event = Event(kind, generation, pointer or 0, message)
    if _repeats(event):
        level = logging.DEBUG
    logger.log(level, "%s", message, extra={"event": event})
    _call(event)


@contextlib.contextmanager
def reporting() -> Iterator[None]:
    """Starts the thread that logs events, and logs all events of the body before the body ends;
    inside a callback they are logged after it.

    The thread waits until the body has ended, so that it does not log a refusal that the body
    raises.
    """
    start()
    raised = None
    with _turn():
        try:
            yield
        except Error as error:
            raised = str(error)
            raise
        finally:
            deliver(raised)


def _listen() -> None:
    """Logs events until the main thread has ended: see src/events.c."""
    while _loam.events_wait():
        _deliver_or_report()
    _deliver_or_report()  # the events since the last wait


def _deliver_or_report() -> None:
    """Delivers events. If a handler of `logging` raises an exception, reports it as Python reports
    an exception that ends a thread, and goes on with the next event."""
    has_failed = True
    while has_failed:
        try:
            deliver()
            has_failed = False
        except BaseException:
            what = (*sys.exc_info(), threading.current_thread())
            threading.excepthook(threading.ExceptHookArgs(what))
            has_failed = bool(_waiting)


def start() -> None:
    """Starts the thread that logs events. Does nothing if it is running.

    Does nothing while the interpreter ends either: the new thread would not begin, and
    Thread.start() would wait for it. Python 3.12 refuses to start a thread already in functions of
    atexit; then events are logged by the calls that cause them, and at the end. Raises RuntimeError
    if the system has no thread.
    """
    global _thread
    if sys.is_finalizing():
        return
    with _starting:
        if _thread is None and _loam.events_start():
            _thread = threading.Thread(target=_listen, name="loam-events", daemon=True)
            try:
                _thread.start()
            except RuntimeError:
                _thread = None
                if threading.main_thread().is_alive():
                    raise


def _after_fork() -> None:
    """Starts again in a forked child, which has no thread and may have inherited held locks.

    Events that were waiting belong to the parent and are dropped.
    """
    global _thread, _starting, _delivering, _is_delivering
    _starting, _delivering, _is_delivering = threading.RLock(), threading.RLock(), False
    _loam.events_take()
    _waiting.clear()
    if _thread is not None:
        _thread = None
        start()


def _deliver_last() -> None:
    """Logs the last events, at the end of the interpreter.

    The callback may be running in another thread. It gets time to return. But it may wait for
    something that never comes, because the program ends. So this function waits for _LAST_S only.
    """
    if _delivering.acquire(timeout=_LAST_S):
        try:
            deliver()
        finally:
            _delivering.release()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_deliver_last)
