"""Tags: names that say what the memory of a part of the program is for."""

from __future__ import annotations

import contextvars
import functools
import inspect
from typing import Any, Callable, TypeVar

from . import _loam

__all__ = ["current_tag", "tag"]

_F = TypeVar("_F", bound=Callable[..., Any])

_Token = contextvars.Token[Any]

# The name of the innermost tag of a context, and the tags that it has entered, outermost first. An
# entry has the tag, the token that takes _current back, the token that takes NumPy's handler back
# or None, and its key in _everywhere or None. A tag may be entered in several contexts at a time,
# so it cannot keep this itself. src/tags.c enters and leaves tags.
_current = _loam.tags_current
_entered = _loam.tags_entered

# The tags with `everywhere` that are entered, each by a key of its own; the last one is in force.
# All threads use it without a lock, which a forked child could find locked for good: each use is
# one step of the interpreter.
_everywhere: dict[object, tag] = _loam.tags_everywhere

# Returns NumPy's variable and its value inside a tag, or None if NumPy is not to see the tag.
# loam.numpy sets it; this module imports neither loam.numpy nor NumPy.
_enter: Callable[[str], tuple[contextvars.ContextVar[Any], Any] | None] | None = None

# Called when the first tag is entered: children of this process are to enter it too. loam.children
# sets it, and takes it away.
_on_first: Callable[[], None] | None = None


def current_tag() -> str | None:
    """Returns the innermost tag of this context, else the tag in force everywhere, else None."""
    own = _current.get()
    if own is None and _everywhere:
        entered = list(_everywhere.values())
        own = entered[-1].name if entered else None
    return own


def tell_entries() -> None:
    """Makes tags available to C functions from now on. loam.torch and loam.cupy call it."""
    _loam.tags_tell()


def _prepare(name: str) -> tuple[contextvars.ContextVar[Any], Any] | None:
    """Prepares the thread for a tag. It may fail, and then nothing has changed."""
    if _on_first:
        _on_first()
    return _enter(name) if _enter else None


def _token(name: str) -> _Token | None:
    """Enters a tag for NumPy, if NumPy is to see it."""
    pair = _enter(name) if _enter else None
    return pair[0].set(pair[1]) if pair else None


def leave_numpy() -> None:
    """Ends the tags of this context for NumPy, as if they had never been entered there.

    Tags that another context has entered, of which this context is a copy, stay in force.
    """
    entered = list(_entered.get())
    for at in reversed(range(len(entered))):
        left, token, of_numpy, key = entered[at]
        if of_numpy is not None:
            try:
                of_numpy.var.reset(of_numpy)
            except (ValueError, RuntimeError):  # of another context, which may have left the tag
                break
        entered[at] = (left, token, None, key)
    _entered.set(tuple(entered))


def enter_numpy() -> None:
    """Enters the tags of this context for NumPy again, after leave_numpy()."""
    _entered.set(tuple((entered, token, _token(entered.name), key)
                       for entered, token, _, key in _entered.get()))


class tag(_loam.Scope):
    """A context manager that gives a tag to the memory that is allocated inside it.

    >>> with loam.tag("training.batch"):
    ...     batch = numpy.empty((64, 1000))

    The tag holds in this thread or asyncio task only. Tags nest; the innermost one is in force. A
    tag is also a decorator, for functions and coroutine functions. For a class and for a generator
    it raises TypeError, because the body of a generator runs later than its call.

    With `everywhere` the tag also holds in every other thread that has entered no tag, including
    threads of libraries. PyTorch's backward pass needs this, because it runs in threads of its own.
    NumPy's arrays are the exception: they get the tag of their context only.

    One object can be entered in several threads and tasks, also at the same time.

    A task that leaves an asynchronous generator early, by break, stays in the generator's tags.
    contextlib.aclosing ends them.

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

    def __call__(self, function: _F) -> _F:
        name, everywhere = self.name, self.everywhere
        if isinstance(function, type) or not callable(function):
            raise TypeError(f"{self!r} decorates functions, not {function!r}")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            named = getattr(function, "__qualname__", function)  # a partial function has no name
            raise TypeError(f"{self!r} is no decorator for the generator {named}: "
                            "use with inside it")
        if inspect.iscoroutinefunction(function):
            async def call_later(*args: Any, **kwargs: Any) -> Any:
                # A coroutine that is never awaited may end in another context: that keeps its tag.
                with tag(name, everywhere=everywhere):
                    return await function(*args, **kwargs)
            return functools.wraps(function)(call_later)  # type: ignore[return-value]

        held = tag(name, everywhere=everywhere)

        def call(*args: Any, **kwargs: Any) -> Any:
            with held:
                return function(*args, **kwargs)
        return functools.wraps(function)(call)  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"loam.tag({self.name!r}{', everywhere=True' if self.everywhere else ''})"


_loam.tags_start(_prepare)
