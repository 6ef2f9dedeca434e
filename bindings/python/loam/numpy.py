"""loam as NumPy's allocator (NEP 49).

    import loam
    loam.numpy.install()

NumPy keeps its handler in a context variable, so a handler that one thread sets does not hold in
other threads. Therefore install() changes the variable's default. Every thread and context sees
this default unless it has set a handler of its own: threads and tasks that run already, those that
start later, and those that C code starts.

Each array keeps the handler that made it. So older arrays are freed by their own handler, and
loam's arrays stay valid after uninstall(), after the end of their thread, and until the end of the
interpreter.
"""

from __future__ import annotations

import contextvars
import os
import threading
from typing import Any

from . import _numpy, children, events, policy, tags
from .errors import StateError

__all__ = ["install", "is_installed", "uninstall"]

# NumPy's own allocator asks for huge pages for large arrays; loam's built-in default policy does
# not. Without huge pages the first touch of a large array takes several times as long.
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
_handlers: dict[tuple[str | None, bool, bool], Any] = {}


def _find_variable() -> contextvars.ContextVar[Any]:
    """Returns NumPy's context variable. Runs in an empty context, which has only that variable."""
    _numpy.set_handler(None)
    for variable in contextvars.copy_context():
        if variable.name == "current_allocator":
            return variable
    raise StateError("this NumPy does not keep its handler in a context variable")


_variable = contextvars.Context().run(_find_variable)


def _handler(name: str | None) -> Any:
    """Returns the capsule of the handler for a tag; None means "numpy.data"."""
    key = (name, _sites, _touch)
    found = _handlers.get(key)
    if found is None:
        found = _handlers.setdefault(key, _numpy.handler_of(*key))
    return found


def _forget(value: Any) -> None:
    """Empties the variable's cache: ContextVar.reset() does that."""
    contextvars.Context().run(lambda: _variable.reset(_variable.set(value)))


def _swap(old: Any, new: Any) -> None:
    # Another thread may fill the cache between the two calls, but not a hundred times.
    for _ in range(100):
        _forget(old)
        if _numpy.swap_default(_variable, old, new):
            return
    raise StateError("loam cannot find a ContextVar's default in this version of Python; use "
                     "install(everywhere=False), which serves one context")


def _default() -> Any:
    """Returns the variable's default, a capsule: loam's while loam is installed everywhere."""
    return contextvars.Context().run(_variable.get)


def _own() -> Any:
    """Returns the handler that this context has set itself, or None."""
    return contextvars.copy_context().get(_variable)


def install(*, sites: bool = False, touch: bool = False, everywhere: bool = True) -> None:
    """Makes loam allocate NumPy's arrays, under the tag of `with loam.tag(...)` or "numpy.data".

    sites: use the Python function that allocates as the call-site: the innermost function outside
        NumPy. Policies and loam.owner() then see its file, function and module, and without a
        loam.tag the tag is "numpy.MODULE.FUNCTION". This costs about as much as the allocation.

    touch: let arrays fill their memory to the last byte, so that a guard page can follow them
        directly. By default an array whose size is a multiple of 16 bytes requests one byte more:
        NumPy computes exp, log, sin and similar functions several times slower if one array begins
        where another ends.

    everywhere: install in all threads and contexts, except those that have set a handler of their
        own. With False, install in this context and its later copies only; this uses only NumPy's
        public functions.

    If no policy is live, install() loads one that requests huge pages for arrays of 4 MiB and more,
    as NumPy's own allocator does. NUMPY_MADVISE_HUGEPAGE=0 prevents this.

    Calling it again changes the options. If this context is inside a tag, NumPy's arrays have that
    tag from now on. Another context that is inside a tag sees no change until its next tag.
    """
    global _sites, _touch
    events.start()
    children.prepare()
    with _lock:
        if policy.info().generation == 0 and os.environ.get("NUMPY_MADVISE_HUGEPAGE") != "0":
            policy.load(text=_POLICY, name="numpy")
        _sites, _touch = sites, touch
        new = _handler(None)
        if everywhere:
            _swap(_default(), new)
        tags.leave_numpy()
        if not everywhere or _own() is not None:
            _numpy.set_handler(new)
        tags.enter_numpy()


def uninstall() -> None:
    """Restores NumPy's own allocator, where install() replaced it and in this context.

    Arrays stay valid: each is freed by the handler that made it. If this context is inside a tag,
    the tag holds for NumPy's arrays no more. Another context that is inside a tag keeps loam's
    handler until that tag ends.
    """
    with _lock:
        if _numpy.is_ours(_default()):
            _swap(_default(), _numpy.default_handler())
        if _numpy.is_ours(_variable.get()):
            tags.leave_numpy()
        if _numpy.is_ours(_variable.get()):
            _numpy.set_handler(None)


def is_installed() -> bool:
    """Returns True if loam would allocate an array that this context makes now."""
    return _numpy.is_ours(_variable.get())


def _arguments() -> dict[str, bool] | None:
    """Returns the arguments of install() that hold here, or None if loam is not installed."""
    everywhere = _numpy.is_ours(_default())
    if not everywhere and not is_installed():
        return None
    return {"sites": _sites, "touch": _touch, "everywhere": everywhere}


def _enter(name: str) -> tuple[contextvars.ContextVar[Any], Any] | None:
    """Returns the variable and the handler of a tag, or None if this context has a handler that is
    not loam's."""
    return (_variable, _handler(name)) if _numpy.is_ours(_variable.get()) else None


def _after_fork() -> None:
    """Starts with a free lock in a forked child: another thread may have held the lock."""
    global _lock
    _lock = threading.RLock()


tags._enter = _enter
os.register_at_fork(after_in_child=_after_fork)
