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
    tag is also a decorator, for functions and coroutine functions.

    With `everywhere` the tag also holds in every other thread that has entered no tag, including
    threads of libraries. PyTorch's backward pass needs this, because it runs in threads of its own.
    NumPy's arrays are the exception: they get the tag of their context only.

    A name has dots between its parts and at most 255 bytes (ValueError).
    """

    __slots__ = ("name", "everywhere", "_tokens")

    def __init__(self, name: str, *, everywhere: bool = False) -> None:
        if not isinstance(name, str):
            raise TypeError(f"a tag is a string, not {type(name).__name__}")
        if len(name.encode()) > 255:
            raise ValueError(f"a tag of {len(name.encode())} bytes: at most 255")
        if "\0" in name:
            raise ValueError("a tag holds no NUL")
        self.name = name
        self.everywhere = everywhere
        self._tokens: list[tuple[contextvars.Token[str | None], Any]] = []

    def __enter__(self) -> tag:
        token = _current.set(self.name)
        self._tokens.append((token, _enter(self.name) if _enter else None))
        if self.everywhere:
            with _lock:
                _everywhere.append(self)
        if _is_told:
            _tell()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        token, of_numpy = self._tokens.pop()
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
