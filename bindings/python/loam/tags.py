"""Tags: what the memory allocated in a part of a program is for."""

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

# Tags in force everywhere, the last counts; each is that of one entering.
_everywhere: list[tag] = []
_lock = threading.Lock()

# What loam.numpy does at the ends of a tag; it is not imported from here, nor is NumPy.
_enter: _Hook | None = None
_leave: Callable[[Any], None] | None = None

# Whether libraries allocate through C functions, in threads of which Python knows nothing.
_is_told = False


def current_tag() -> str | None:
    """The innermost tag of this context, else the one in force everywhere; None outside any."""
    own = _current.get()
    if own is None and _everywhere:
        own = _of_everyone()
    return own


def _of_everyone() -> str | None:
    with _lock:
        return _everywhere[-1].name if _everywhere else None


def _tell() -> None:
    """Leaves what holds now with this thread, for calls that come without the interpreter."""
    _loam.entries_tag(_current.get(), _of_everyone())


def tell_entries() -> None:
    """From now on tags are left where C functions find them: loam.torch and loam.cupy ask."""
    global _is_told
    if not _is_told:
        _loam.entries_variable(_current)
        _is_told = True
    _tell()


class tag:
    """Names what is allocated inside it, in this thread or asyncio task alone.

    >>> with loam.tag("training.batch"):
    ...     batch = numpy.empty((64, 1000))

    Tags nest, the innermost counts. Also a decorator, for functions and coroutine functions.

    With `everywhere` it holds in all other threads as well, those of libraries too, wherever no
    tag was entered: so for PyTorch's backward pass, which runs in threads of its own. NumPy's
    arrays are the exception; they have the tag of their context alone.
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
                # The last that is this one; others may have been entered since, in other threads.
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
