"""loam's memory for CuPy.

    loam.cupy.install()
    with loam.tag("model.weights"):
        weights = cupy.empty((4096, 4096), cupy.float32)

install() makes loam CuPy's allocator, in place of its pools. Of device memory by
CFunctionAllocator, so that an allocation runs C alone but for one Python function that looks
whether there was memory. It is ready for the current stream, and freed for reuse on the stream that
it was allocated on: as in CuPy's own pool, whoever uses it on another has to keep the two in order.
Of pinned memory, through which CuPy copies, and which its own pool rounds up to powers of two.

The tag is that of the loam.tag in force, else "cupy.data", of pinned memory "cupy.pinned".
"""

from __future__ import annotations

import gc
from typing import Any, Callable

from . import _loam, tags
from .errors import NoMemoryError

try:
    import cupy
except ImportError as error:
    raise ImportError("loam.cupy gives CuPy its memory, and CuPy is not installed: "
                      "pip install cupy-cuda13x, or that of the CUDA version there is") from error

__all__ = ["allocator", "install", "is_installed", "pinned_allocator", "uninstall"]

_PORTABLE = 2  # LOAM_PINNED_PORTABLE in loam.h
_OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation


def _current_stream() -> int:
    """The address of CuPy's C function that tells a thread's current stream; 0: it has none."""
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
    """Memory of `size` bytes: for cupy.cuda.set_allocator and cupy.cuda.using_allocator."""
    pointer = _functions.malloc(size)
    if size and not pointer.ptr:
        return _allocate_again(size)
    return pointer


def _allocate_again(size: int) -> Any:
    """After what CuPy's pool does: arrays may live in cycles, of exceptions for one."""
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
    """Pinned memory, as CuPy's PinnedMemoryPointer keeps it."""

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
    """Pinned memory of `size` bytes: for cupy.cuda.set_pinned_memory_allocator."""
    try:
        return cupy.cuda.PinnedMemoryPointer(_Pinned(size), 0)
    except NoMemoryError as error:
        # By this one, and no other, CuPy knows to go on without.
        raise cupy.cuda.runtime.CUDARuntimeError(_OUT_OF_MEMORY) from error


def install() -> None:
    """loam as CuPy's allocator, in all threads, for what is allocated from now on."""
    if not is_installed():
        _before.append(cupy.cuda.get_allocator())
        cupy.cuda.set_allocator(allocator)
        cupy.cuda.set_pinned_memory_allocator(pinned_allocator)


def uninstall() -> None:
    """The allocator of before install(), and CuPy's own of pinned memory; what was allocated is
    freed as it was made."""
    if _before:
        cupy.cuda.set_allocator(_before.pop())
        cupy.cuda.set_pinned_memory_allocator(cupy.get_default_pinned_memory_pool().malloc)


def is_installed() -> bool:
    return bool(_before)
