"""Tags: names that say what the memory of a part of the program is for."""

from __future__ import annotations

import contextvars
import functools
import inspect
import threading
from types import TracebackType
from typing import Any, Callable, TypeVar

from . import _loam

__all__ = ["current_tag", "tag"]

_F = TypeVar("_F", bound=Callable[..., Any])
_Hook = Callable[[str], Any]

_current: contextvars.ContextVar[str | None] = contextvars.ContextVar("loam.tag", default=None)

# The tags that this context has entered, outermost first: each with what takes _current back, and
# with what _enter returned. A tag may be entered in several contexts at a time, so it cannot keep
# this itself.
_Entry = tuple["tag", contextvars.Token["str | None"], Any]
_entered: contextvars.ContextVar[tuple[_Entry, ...]] = contextvars.ContextVar(
    "loam.entered", default=())

# The entered tags with `everywhere`; the last one is in force. A tag that was entered twice is here
# twice.
_everywhere: list[tag] = []
_lock = threading.Lock()

# Functions that enter and leave a tag for NumPy. loam.numpy sets them; this module imports neither
# loam.numpy nor NumPy.
_enter: _Hook | None = None
_leave: Callable[[Any], None] | None = None

# True once libraries allocate through C functions, in threads that Python does not know.
_is_told = False


def current_tag() -> str | None:
    """Returns the innermost tag of this context, else the tag in force everywhere, else None."""
    own = _current.get()
    if own is None and _everywhere:
        own = _of_everyone()
    return own


def _of_everyone() -> str | None:
    with _lock:
        return _everywhere[-1].name if _everywhere else None


def _tell() -> None:
    """Stores the present tags for C functions that are called without the interpreter's lock."""
    _loam.entries_tag(_current.get(), _of_everyone())


def tell_entries() -> None:
    """Makes tags available to C functions from now on. loam.torch and loam.cupy call it."""
    global _is_told
    if not _is_told:
        _loam.entries_variable(_current)
        _is_told = True
    _tell()


class tag:
    """A context manager that gives a tag to the memory that is allocated inside it.

    >>> with loam.tag("training.batch"):
    ...     batch = numpy.empty((64, 1000))

    The tag holds in this thread or asyncio task only. Tags nest; the innermost one is in force. A
    tag is also a decorator, for functions and coroutine functions; for a generator it raises
    TypeError, because the body of a generator runs later than its call.

    With `everywhere` the tag also holds in every other thread that has entered no tag, including
    threads of libraries. PyTorch's backward pass needs this, because it runs in threads of its own.
    NumPy's arrays are the exception: they get the tag of their context only.

    One object can be entered in several threads and tasks, also at the same time.

    A name has dots between its parts and at most 255 bytes (ValueError).
    """

    __slots__ = ("name", "everywhere")

    def __init__(self, name: str, *, everywhere: bool = False) -> None:
        if not isinstance(name, str):
            raise TypeError(f"a tag is a string, not {type(name).__name__}")
        if len(name.encode()) > 255:
            raise ValueError(f"a tag of {len(name.encode())} bytes: at most 255")
        if "\0" in name:
            raise ValueError("a tag holds no NUL")
        self.name = name
        self.everywhere = everywhere

    def __enter__(self) -> tag:
        token = _current.set(self.name)
        entry = (self, token, _enter(self.name) if _enter else None)
        _entered.set((*_entered.get(), entry))
        if self.everywhere:
            with _lock:
                _everywhere.append(self)
        if _is_told:
            _tell()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        entered = _entered.get()
        # The latest entry of this tag: generators may leave their tags in another order.
        at = max((i for i, entry in enumerate(entered) if entry[0] is self), default=None)
        if at is None:
            raise RuntimeError(f"{self!r} is left where it was not entered: another thread or task "
                               "entered it")
        _entered.set(entered[:at] + entered[at + 1:])
        _, token, of_numpy = entered[at]
        if of_numpy is not None and _leave:
            _leave(of_numpy)
        _current.reset(token)
        if self.everywhere:
            with _lock:
                # The last entry of this tag: other threads may have entered other tags since.
                at = len(_everywhere) - 1 - _everywhere[::-1].index(self)
                del _everywhere[at]
        if _is_told:
            _tell()

    def __call__(self, function: _F) -> _F:
        name, everywhere = self.name, self.everywhere
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{self!r} is no decorator for the generator {function.__qualname__}: "
                            "use with inside it")
        if inspect.iscoroutinefunction(function):
            async def call_later(*args: Any, **kwargs: Any) -> Any:
                with tag(name, everywhere=everywhere):
                    return await function(*args, **kwargs)
            return functools.wraps(function)(call_later)  # type: ignore[return-value]

        def call(*args: Any, **kwargs: Any) -> Any:
            with tag(name, everywhere=everywhere):
                return function(*args, **kwargs)
        return functools.wraps(function)(call)  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"loam.tag({self.name!r}{', everywhere=True' if self.everywhere else ''})"
