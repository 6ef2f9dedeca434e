"""Tags: names that say what the memory of a part of the program is for."""

from __future__ import annotations

import contextvars
import functools
import inspect
from types import TracebackType
from typing import Any, Callable, TypeVar

from . import _loam

__all__ = ["current_tag", "tag"]

_F = TypeVar("_F", bound=Callable[..., Any])

_current: contextvars.ContextVar[str | None] = contextvars.ContextVar("loam.tag", default=None)

# The tags that this context has entered, outermost first. A tag may be entered in several contexts
# at a time, so it cannot keep this itself. An entry has the tag, the token that takes _current
# back, the token that takes NumPy's handler back or None, and its key in _everywhere.
_Token = contextvars.Token[Any]
_Entry = tuple["tag", _Token, "_Token | None", object]
_entered: contextvars.ContextVar[tuple[_Entry, ...]] = contextvars.ContextVar(
    "loam.entered", default=())

# The tags with `everywhere` that are entered, each by a key of its own; the last one is in force.
# All threads use it without a lock, which a forked child could find locked for good: each use is
# one step of the interpreter.
_everywhere: dict[object, tag] = {}

# Enters a tag for NumPy. loam.numpy sets it; this module imports neither loam.numpy nor NumPy.
_enter: Callable[[str], "_Token | None"] | None = None

# Called when the first tag is entered: children of this process are to enter it too. loam.children
# sets it, and takes it away.
_on_first: Callable[[], None] | None = None

# True once libraries allocate through C functions, in threads that Python does not know.
_is_told = False


def current_tag() -> str | None:
    """Returns the innermost tag of this context, else the tag in force everywhere, else None."""
    own = _current.get()
    if own is None and _everywhere:
        own = _of_everyone()
    return own


def _of_everyone() -> str | None:
    entered = list(_everywhere.values())
    return entered[-1].name if entered else None


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


def _take_back(token: _Token, is_last: bool) -> _Token:
    """Gives a variable the value that it had before an entry.

    If later entries are in force, the variable keeps its value: then the token that this function
    returns gives it the earlier one. Raises ValueError if another context made the entry.
    """
    variable = token.var
    now = variable.get()
    variable.reset(token)
    return token if is_last else variable.set(now)


def _leave(left: tag) -> object:
    """Removes the latest entry of a tag in this context, and returns its key in _everywhere.

    Generators may leave their tags in another order than they entered them. So the entry behind
    the removed one gets new tokens: they bring back the values from before both entries. Raises
    ValueError if this context has not entered the tag.
    """
    entered = _entered.get()
    at = max((i for i, entry in enumerate(entered) if entry[0] is left), default=None)
    if at is None:
        raise ValueError
    _, token, of_numpy, key = entered[at]
    after = list(entered[at + 1:])
    token = _take_back(token, is_last=not after)
    if of_numpy is not None:
        of_numpy = _take_back(of_numpy, is_last=not after)
    if after:
        later, _, of_later, later_key = after[0]
        after[0] = (later, token, of_numpy or of_later, later_key)
    _entered.set((*entered[:at], *after))
    return key


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
    if _enter:
        _entered.set(tuple((entered, token, _enter(entered.name), key)
                           for entered, token, _, key in _entered.get()))


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
        if _on_first:
            _on_first()
        of_numpy = _enter(self.name) if _enter else None  # may fail, so it comes first
        key = object()
        _entered.set((*_entered.get(), (self, _current.set(self.name), of_numpy, key)))
        if self.everywhere:
            _everywhere[key] = self
        if _is_told:
            _tell()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        try:
            key = _leave(self)
        except ValueError:
            raise RuntimeError(f"{self!r} is left where it was not entered: another thread or task "
                               "entered it") from None
        _everywhere.pop(key, None)
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
