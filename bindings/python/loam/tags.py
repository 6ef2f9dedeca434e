"""Tags: what the memory allocated in a part of a program is for."""

from __future__ import annotations

import contextvars
import functools
import inspect
from types import TracebackType
from typing import Any, Callable, TypeVar

__all__ = ["current_tag", "tag"]

_F = TypeVar("_F", bound=Callable[..., Any])
_Hook = Callable[[str], Any]

_current: contextvars.ContextVar[str | None] = contextvars.ContextVar("loam.tag", default=None)

# What loam.numpy does at the ends of a tag; it is not imported from here, nor is NumPy.
_enter: _Hook | None = None
_leave: Callable[[Any], None] | None = None


def current_tag() -> str | None:
    """The innermost tag of this context; None outside any."""
    return _current.get()


class tag:
    """Names what is allocated inside it, in this thread or asyncio task alone.

    >>> with loam.tag("training.batch"):
    ...     batch = numpy.empty((64, 1000))

    Tags nest, the innermost counts. Also a decorator, for functions and coroutine functions.
    """

    __slots__ = ("name", "_tokens")

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"a tag is a string, not {type(name).__name__}")
        if len(name.encode()) > 255:
            raise ValueError(f"a tag of {len(name.encode())} bytes: at most 255")
        if "\0" in name:
            raise ValueError("a tag holds no NUL")
        self.name = name
        self._tokens: list[tuple[contextvars.Token[str | None], Any]] = []

    def __enter__(self) -> tag:
        token = _current.set(self.name)
        self._tokens.append((token, _enter(self.name) if _enter else None))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        token, of_numpy = self._tokens.pop()
        if of_numpy is not None and _leave:
            _leave(of_numpy)
        _current.reset(token)

    def __call__(self, function: _F) -> _F:
        name = self.name
        if inspect.iscoroutinefunction(function):
            async def call_later(*args: Any, **kwargs: Any) -> Any:
                with tag(name):
                    return await function(*args, **kwargs)
            return functools.wraps(function)(call_later)  # type: ignore[return-value]

        def call(*args: Any, **kwargs: Any) -> Any:
            with tag(name):
                return function(*args, **kwargs)
        return functools.wraps(function)(call)  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"loam.tag({self.name!r})"
