"""loam's memory for CuPy.

    loam.cupy.install()
    with loam.tag("model.weights"):
        weights = cupy.empty((4096, 4096), cupy.float32)

install() makes loam CuPy's allocator, in place of its pool: by CFunctionAllocator, so that an
allocation runs C alone but for one Python function that looks whether there was memory. Memory is
ready for the current stream, and freed for reuse on the stream that it was allocated on: as in
CuPy's own pool, whoever uses it on another has to keep the two in order.

The tag is that of the loam.tag in force, else "cupy.data".
"""

from __future__ import annotations

from typing import Any

from . import _loam, tags

try:
    import cupy
except ImportError as error:
    raise ImportError("loam.cupy gives CuPy its memory, and CuPy is not installed: "
                      "pip install cupy-cuda13x, or that of the CUDA version there is") from error

__all__ = ["allocator", "install", "is_installed", "uninstall"]


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
        total = _loam.device_memory(cupy.cuda.get_device_id())[1]
        raise cupy.cuda.memory.OutOfMemoryError(size, total)
    return pointer


def install() -> None:
    """loam as CuPy's allocator, in all threads, for what is allocated from now on."""
    if not is_installed():
        _before.append(cupy.cuda.get_allocator())
        cupy.cuda.set_allocator(allocator)


def uninstall() -> None:
    """The allocator of before install(); what was allocated is freed as it was made."""
    if _before:
        cupy.cuda.set_allocator(_before.pop())


def is_installed() -> bool:
    return bool(_before)
