"""loam as NumPy's allocator (NEP 49).

    import loam
    loam.numpy.install()

NumPy keeps its handler in a context variable: a handler set in one thread is not seen by the next.
install() therefore changes the variable's default, which is what every thread and every context
sees that has set no handler of its own: threads and tasks that run already, those started later,
and those that C code starts. Each array keeps the handler that made it, so arrays of before are
freed as they were made, and arrays of loam's stay valid after uninstall(), after their thread, and
to the very end of the interpreter.
"""

from __future__ import annotations

import contextvars
import os
import threading
from typing import Any

from . import _numpy, events, policy, tags
from .errors import StateError

__all__ = ["install", "is_installed", "uninstall"]

# What NumPy's own allocator asks of the kernel, which loam's built-in default does not: without it
# the first touch of a large array takes several times as long.
_POLICY = """
local plain = loam.host { name = "plain" }
local large = loam.host { name = "large", huge = "thp" }

return loam.policy {
  name = "numpy",
  pick = function(req)
    if req.size >= 4 * loam.MiB then return large:or_else(plain) end
    return plain
  end,
}
"""

_lock = threading.RLock()
_sites = False
_touch = False
_default: Any = None  # the capsule that is the variable's default while installed everywhere
_handlers: dict[tuple[str | None, bool, bool], Any] = {}


def _find_variable() -> contextvars.ContextVar[Any]:
    """NumPy's variable, by the only context that certainly holds it."""
    _numpy.set_handler(None)
    for variable in contextvars.copy_context():
        if variable.name == "current_allocator":
            return variable
    raise StateError("this NumPy does not keep its handler in a context variable")


_variable = contextvars.Context().run(_find_variable)


def _handler(name: str | None) -> Any:
    """The capsule of a tag; None is the tag of what has none."""
    key = (name, _sites, _touch)
    found = _handlers.get(key)
    if found is None:
        found = _handlers.setdefault(key, _numpy.handler_of(*key))
    return found


def _forget(value: Any) -> None:
    """Empties the variable's cache, which reset() does."""
    contextvars.Context().run(lambda: _variable.reset(_variable.set(value)))


def _swap(old: Any, new: Any) -> None:
    # A thread may fill the cache between the two; not a hundred times.
    for _ in range(100):
        _forget(old)
        if _numpy.swap_default(_variable, old, new):
            return
    raise StateError("this Python does not keep a ContextVar's default where loam knows to change "
                     "it; install(everywhere=False) serves one context")


def _own() -> Any:
    """The handler that this context has set itself, if any."""
    return contextvars.copy_context().get(_variable)


def install(*, sites: bool = False, touch: bool = False, everywhere: bool = True) -> None:
    """Lets loam serve NumPy's arrays, under the tag "numpy.data" or that of `with loam.tag(...)`.

    `sites`: each allocation names the Python function that asked for it, the innermost outside
    NumPy: the tag is then "numpy.MODULE.FUNCTION" unless one is in force, and policies and
    loam.owner() see its file, function and module. It costs about as much as the allocation.

    `touch`: lets arrays fill their memory to the last byte, with a guard page right behind them if
    the policy says so. Else those of a multiple of 16 bytes ask for one byte more, because NumPy
    computes exp, log, sin and their like several times as slowly where one array begins at the end
    of another.

    `everywhere`: for all threads and contexts but those that set a handler of their own; else for
    this context alone and those copied from it, by NumPy's public functions only.

    Where no policy is live, one is loaded that asks for huge pages for 4 MiB and more, as NumPy
    does itself; with NUMPY_MADVISE_HUGEPAGE=0 neither does.

    Again, it changes the choice. What is inside a tag already keeps what it has until the next.
    """
    global _sites, _touch, _default
    events.start()
    with _lock:
        if policy.info().generation == 0 and os.environ.get("NUMPY_MADVISE_HUGEPAGE") != "0":
            policy.load(text=_POLICY, name="numpy")
        _sites, _touch = sites, touch
        new = _handler(None)
        if everywhere:
            _swap(_default or _numpy.default_handler(), new)
            _default = new
        own = _own()
        if not everywhere or (own is not None and tags.current_tag() is None):
            _numpy.set_handler(new)


def uninstall() -> None:
    """Gives NumPy its own allocator back, where install() took it and in this context.

    Arrays stay valid: each is freed by what made it. A tag that another context is inside of lasts
    to its end.
    """
    global _default
    with _lock:
        if _default is not None:
            _swap(_default, _numpy.default_handler())
            _default = None
        own = _own()
        if own is not None and _numpy.is_ours(own):
            _numpy.set_handler(None)


def is_installed() -> bool:
    """Whether an array made here and now would be loam's."""
    return _numpy.is_ours(_variable.get())


def _enter(name: str) -> contextvars.Token[Any] | None:
    """Inside a tag, unless this context's handler is somebody else's."""
    return _variable.set(_handler(name)) if _numpy.is_ours(_variable.get()) else None


tags._enter = _enter
tags._leave = _variable.reset
