"""loam's memory for CuPy.

    loam.cupy.install()
    with loam.tag("model.weights"):
        weights = cupy.empty((4096, 4096), cupy.float32)

install() makes loam CuPy's allocator, in place of CuPy's pools. The tag is the loam.tag in force,
or else "cupy.data", and "cupy.pinned" for pinned memory.

Device memory goes through CuPy's CFunctionAllocator, so an allocation runs only C code, except one
Python function that checks the result. The memory is ready for the current stream. When it is
freed, it can be reused on the stream of its allocation. As with CuPy's own pool, a program that
uses the memory on another stream has to order the two streams.

Pinned memory is used for CuPy's copies. CuPy's own pool rounds it up to powers of two; loam does
not.
"""

from __future__ import annotations

import gc
from typing import Any, Callable

from . import _loam, tags
from .errors import NoMemoryError

try:
    import cupy
except ImportError as error:
    raise ImportError("loam.cupy needs CuPy, and CuPy is not installed: pip install "
                      "cupy-cuda13x, or the package for your version of CUDA") from error

__all__ = ["allocator", "install", "is_installed", "pinned_allocator", "uninstall"]

_PORTABLE = 2  # LOAM_PINNED_PORTABLE in loam.h
_OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation


def _current_stream() -> int:
    """Returns the address of CuPy's C function for a thread's current stream, or 0."""
    try:
        from cupy_backends.cuda import stream
        capsule = stream.__pyx_capi__["get_current_stream_ptr"]
    except (AttributeError, ImportError, KeyError):
        return 0
    return _loam.entries_capsule(capsule)


def _make() -> Any:
    malloc, free = _loam.entries_cupy()
    return cupy.cuda.memory.CFunctionAllocator(_current_stream(), malloc, free, _loam)


tags.tell_entries()
_functions = _make()
_before: list[Any] = []


def allocator(size: int) -> Any:
    """Allocates device memory: for cupy.cuda.set_allocator and cupy.cuda.using_allocator.

    Raises cupy.cuda.memory.OutOfMemoryError; its cause is loam's NoMemoryError.
    """
    pointer = _functions.malloc(size)
    if size and not pointer.ptr:
        return _allocate_again(size)
    return pointer


def _allocate_again(size: int) -> Any:
    """Frees memory and tries again, as CuPy's pool does.

    A garbage collection can free arrays that live in reference cycles, for example of exceptions.
    """
    device = cupy.cuda.get_device_id()
    gc.collect()
    _loam.device_trim(device)
    pointer = _functions.malloc(size)
    if not pointer.ptr:
        words = NoMemoryError(_loam.entries_words())
        used = _loam.device_info(device)["used"]
        raise cupy.cuda.memory.OutOfMemoryError(size, used) from words
    return pointer


class _Pinned:
    """Pinned memory in the form that CuPy's PinnedMemoryPointer holds."""

    __slots__ = ("ptr", "size", "__weakref__")

    def __init__(self, size: int) -> None:
        self.ptr, self.size = 0, size
        if size:
            self.ptr = _loam.manager_pinned(tags.current_tag(), "cupy.pinned",
                                            cupy.cuda.get_device_id(), size, _PORTABLE)

    def __int__(self) -> int:
        return self.ptr

    def __del__(self, free: Callable[[int], None] = _loam.entries_free) -> None:
        if self.ptr:
            free(self.ptr)


def pinned_allocator(size: int) -> Any:
    """Allocates pinned memory: for cupy.cuda.set_pinned_memory_allocator."""
    try:
        return cupy.cuda.PinnedMemoryPointer(_Pinned(size), 0)
    except NoMemoryError as error:
        # CuPy continues without pinned memory after this exception, and after no other.
        raise cupy.cuda.runtime.CUDARuntimeError(_OUT_OF_MEMORY) from error


def install() -> None:
    """Makes loam CuPy's allocator, in all threads, for all later allocations."""
    if not is_installed():
        _before.append(cupy.cuda.get_allocator())
        cupy.cuda.set_allocator(allocator)
        cupy.cuda.set_pinned_memory_allocator(pinned_allocator)


def uninstall() -> None:
    """Restores the allocator from before install(), and CuPy's own pool of pinned memory.

    Arrays stay valid: each is freed by the allocator that made it.
    """
    if _before:
        cupy.cuda.set_allocator(_before.pop())
        cupy.cuda.set_pinned_memory_allocator(cupy.get_default_pinned_memory_pool().malloc)


def is_installed() -> bool:
    """Returns True between install() and uninstall()."""
    return bool(_before)
