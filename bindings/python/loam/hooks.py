"""Hooks: a function that is called for each block of memory, for debugging; and handlers of other
libraries that policies can name."""

from __future__ import annotations

import atexit
from typing import Any, Callable, Optional

from . import _loam

__all__ = ["get_handler", "on_block", "on_memory", "register_handler", "set_handler"]

MemoryHook = Callable[[int, int, int], Any]
BlockHook = Callable[[str, int, str, int, int], Any]


def on_memory(callback: Optional[MemoryHook]) -> Optional[MemoryHook]:
    """Sets a function that is called for each block that loam allocates, resizes or frees.

    The call is callback(old, new, size), with the addresses before and after: `old` is 0 for a new
    block, and `new` and `size` are 0 for a free. None removes the function. Returns the previous
    one.

    The function runs in the thread that allocates, which may be in the middle of any operation. It
    must not wait for another thread. The blocks that it allocates are not reported, and its
    exceptions go to sys.unraisablehook. A KeyboardInterrupt or SystemExit that comes in the main
    thread, as from a signal handler, is raised there soon after the function has ended. A process
    has one such function. Raises RuntimeError under `loam run`, where each malloc of the process
    would be reported.
    """
    return _loam.hook_memory(callback)


def on_block(callback: Optional[BlockHook]) -> Optional[BlockHook]:
    """Sets a function that is called for each operation on blocks with counted references.

    The call is callback(verb, block, tag, size, references). `verb` is "made", "retained",
    "released" or "ended", `block` is a number that no other live block has, and `references` is the
    count after the operation. All else is as for on_memory().
    """
    return _loam.hook_block(callback)


def register_handler(capsule: Any) -> str:
    """Makes a handler known to policies, as loam.handler "name", and returns its name.

    `capsule` is what NumPy's PyDataMem_SetHandler takes (NEP 49): a capsule with the name
    "mem_handler". loam keeps it for good. Its functions are called in any thread, also without the
    interpreter's lock, so NumPy's own default handler does not qualify. A later handler of this
    name replaces it for future blocks. Raises InvalidError for a handler that is not complete.
    """
    return _loam.register_handler(capsule)


def set_handler(capsule: Optional[Any]) -> Optional[Any]:
    """Sets the handler that makes the data of new Blocks, Arrays and Arenas, and returns the
    previous one; None lets the policy decide again.

    The handler is a capsule as for register_handler(), and it is kept for good. It belongs to the
    current context, as NumPy's own handler does: asyncio tasks take it along, new threads do not.
    The policy is not asked about these data. Each Block, Array and Arena keeps its handler. Raises
    InvalidError for a handler that is not complete.
    """
    return _loam.set_handler(capsule)


def get_handler() -> Optional[Any]:
    """Returns the capsule that set_handler() has set in this context, or None."""
    return _loam.get_handler()


def _remove() -> None:
    _loam.hook_memory(None)
    _loam.hook_block(None)


atexit.register(_remove)
