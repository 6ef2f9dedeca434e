"""Numba's External Memory Management plug-in (NBEP 7), version 1 of the interface.

Numba's memory belongs to no stream: work on any of them may still use it when it is freed. So what
Numba frees is collected, and given back to loam's pools together, after one wait for the device; at
most as many blocks and as large a share of the device's memory as Numba's own manager collects
(NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT and _RATIO), sooner where memory is wanting, and none inside
numba.cuda.defer_cleanup().
"""

from __future__ import annotations

import contextlib
import ctypes
import weakref
from typing import Any, Callable, Iterator

from numba.core import config
from numba.cuda import BaseCUDAMemoryManager, MappedMemory, MemoryInfo, MemoryPointer, PinnedMemory
from numba.cuda.cudadrv import driver as numba_driver
from numba.cuda.cudadrv.driver import GetIpcHandleMixin, ManagedMemory

from . import _loam
from .errors import NoMemoryError
from .tags import current_tag

__all__ = ["Manager"]

_TAG = "numba.cuda"
_MAPPED, _PORTABLE, _WRITE_COMBINED = 1, 2, 4  # LOAM_PINNED_* in loam.h
_OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY


def _device_pointer(address: int) -> Any:
    """An address as this Numba keeps it: ctypes', or that of NVIDIA's own package."""
    if getattr(numba_driver, "USE_NV_BINDING", True):
        return numba_driver.binding.CUdeviceptr(address)
    return numba_driver.drvapi.cu_device_ptr(address)


def _host_pointer(address: int) -> Any:
    return address if getattr(numba_driver, "USE_NV_BINDING", True) else ctypes.c_void_p(address)


def _address(pointer: Any) -> int:
    value = getattr(pointer, "value", pointer)
    return int(value) if value is not None else 0


class _Blocks:
    """What a manager has allocated, and of that what is freed but not given back.

    Finalizers hold this and not the manager; after a reset they find nothing of theirs.
    """

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        self.pending: list[int] = []
        self.pending_bytes = 0
        self.most_bytes = 0
        self.deferred = 0
        self.generation = 0
        self.context: Any = None  # the driver's own handle

    def finalizer(self, address: int, size: int) -> Callable[[], None]:
        self.sizes[address] = size
        generation = self.generation

        def free() -> None:
            if self.generation == generation and address in self.sizes:
                self.pending.append(address)
                self.pending_bytes += size
                if (len(self.pending) > config.CUDA_DEALLOCS_COUNT
                        or self.pending_bytes > self.most_bytes):
                    self.give_back()
        return free

    def wait(self) -> None:
        """For all work of the context, in a thread that may have no context, or another."""
        numba_driver.driver.cuCtxPushCurrent(self.context)
        try:
            numba_driver.driver.cuCtxSynchronize()
        finally:
            numba_driver.driver.pop_active_context()

    def give_back(self) -> bool:
        """Whether there was anything."""
        if self.deferred or not self.pending:
            return False
        # What is freed while this waits is not what it waited for.
        freed, self.pending, self.pending_bytes = self.pending, [], 0
        try:
            self.wait()
        except BaseException:
            self.pending += freed
            raise
        for address in freed:
            if self.sizes.pop(address, None) is not None:
                _loam.device_free(address)
        return True

    def end(self) -> None:
        """All of it: their context ends."""
        self.generation += 1
        everything, self.sizes = self.sizes, {}
        self.pending, self.pending_bytes = [], 0
        for address in everything:
            _loam.device_free(address)


class Manager(GetIpcHandleMixin, BaseCUDAMemoryManager):  # type: ignore[misc]
    """loam as Numba's memory manager: device, pinned, mapped and managed memory."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._blocks = _Blocks()
        self._kept: dict[int, Any] = {}  # what Numba holds by weak references alone

    def initialize(self) -> None:
        if not self._blocks.most_bytes:
            self._blocks.context = self.context.handle
            total = self.get_memory_info().total
            self._blocks.most_bytes = int(total * config.CUDA_DEALLOCS_RATIO)

    @property
    def interface_version(self) -> int:
        return 1

    # ---- Allocation

    def _allocate(self, function: Callable[..., int], size: int, *rest: int) -> int:
        tag = current_tag()
        try:
            return function(tag, _TAG, size, *rest)
        except NoMemoryError as error:
            words = str(error)
        if self._blocks.give_back():
            try:
                return function(tag, _TAG, size, *rest)
            except NoMemoryError as error:
                words = str(error)
        raise numba_driver.CudaAPIError(_OUT_OF_MEMORY, f"out of memory: {words}")

    def memalloc(self, size: int) -> Any:
        address = self._allocate(_loam.device_alloc, size)
        finalizer = self._blocks.finalizer(address, size)
        return MemoryPointer(weakref.proxy(self.context), _device_pointer(address), size,
                             finalizer=finalizer)

    def _keep(self, address: int, memory: Any) -> Any:
        """Counted by Numba: it ends when the last that was derived from it is gone."""
        self._kept[address] = memory
        return memory.own()

    def _finalizer_of_kept(self, address: int, free: Callable[[], None]) -> Callable[[], None]:
        kept = self._kept

        def end() -> None:
            kept.pop(address, None)
            free()
        return end

    def memallocmanaged(self, size: int, attach_global: bool) -> Any:
        address = self._allocate(_loam.managed_alloc, size)
        free = self._finalizer_of_kept(address, self._blocks.finalizer(address, size))
        return self._keep(address, ManagedMemory(weakref.proxy(self.context),
                                                 _device_pointer(address), size, finalizer=free))

    def memhostalloc(self, size: int, mapped: bool = False, portable: bool = False,
                     wc: bool = False) -> Any:
        flags = _MAPPED * mapped | _PORTABLE * portable | _WRITE_COMBINED * wc
        address = self._allocate(_loam.pinned_alloc, size, flags)
        return self._of_host(address, size, None, mapped, self._blocks.finalizer(address, size))

    def mempin(self, owner: Any, pointer: Any, size: int, mapped: bool = False) -> Any:
        address = _address(pointer)
        _loam.pin(address, size, _MAPPED * mapped)

        def unpin() -> None:  # at once: the owner may free the memory next
            _loam.unpin(address)
        return self._of_host(address, size, owner, mapped, unpin)

    def _of_host(self, address: int, size: int, owner: Any, mapped: bool,
                 free: Callable[[], None]) -> Any:
        context = weakref.proxy(self.context)
        pointer = _host_pointer(address)
        if not mapped:
            return PinnedMemory(context, pointer, size, owner=owner, finalizer=free)
        free = self._finalizer_of_kept(address, free)
        return self._keep(address, MappedMemory(context, pointer, size, owner=owner,
                                                finalizer=free))

    # ---- The rest

    def get_memory_info(self) -> Any:
        with numba_driver.driver.get_active_context() as active:
            free, total = _loam.device_memory(active.devnum or 0)
        return MemoryInfo(free=free, total=total)

    def reset(self) -> None:
        self._blocks.end()
        self._kept.clear()

    @contextlib.contextmanager
    def defer_cleanup(self) -> Iterator[None]:
        self._blocks.deferred += 1
        try:
            yield
        finally:
            self._blocks.deferred -= 1
