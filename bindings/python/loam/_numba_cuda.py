"""A plug-in for Numba's External Memory Management (NBEP 7), version 1 of the interface: loam's
manager, with Numba's classes for the memory.

Numba's memory belongs to no stream, so work on any stream may still use it when it is freed. So the
plug-in collects frees and gives the memory back to loam's pools together, after one wait for the
device. The limits are those of Numba's own manager: a number of blocks and a share of the device's
memory (NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT and _RATIO). It gives memory back earlier if memory is
short, and gives none back inside numba.cuda.defer_cleanup().
"""

from __future__ import annotations

import contextlib
import ctypes
import weakref
from typing import Any, Callable, Iterator

from numba.core import config
from numba.cuda import BaseCUDAMemoryManager, MappedMemory, MemoryInfo, MemoryPointer, PinnedMemory
from numba.cuda.cudadrv import driver as numba_driver
from numba.cuda.cudadrv.driver import IpcHandle, ManagedMemory

from . import _loam
from .errors import Error, NoMemoryError
from .tags import current_tag

__all__ = ["Manager"]

_TAG = "numba.cuda"
_MAPPED, _PORTABLE, _WRITE_COMBINED = 1, 2, 4  # LOAM_PINNED_* in loam.h
_OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY

# Newer versions of Numba hold addresses in the types of NVIDIA's package, not of ctypes.
_BY_PACKAGE = getattr(numba_driver, "USE_NV_BINDING", True)


def _device_pointer(address: int) -> Any:
    if _BY_PACKAGE:
        return numba_driver.binding.CUdeviceptr(address)
    return numba_driver.drvapi.cu_device_ptr(address)


def _host_pointer(address: int) -> Any:
    return address if _BY_PACKAGE else ctypes.c_void_p(address)


def _ipc_handle(handle: bytes) -> Any:
    if _BY_PACKAGE:
        made = numba_driver.binding.CUipcMemHandle()
        made.reserved = handle
        return made
    return numba_driver.drvapi.cu_ipc_mem_handle.from_buffer_copy(handle)


def _handle_bytes(handle: Any) -> bytes:
    return bytes(handle.reserved if _BY_PACKAGE else handle)


def _address(pointer: Any) -> int:
    value = getattr(pointer, "value", pointer)
    return int(value) if value is not None else 0


class _Life:
    """The life of a context, from start to reset. After the reset, finalizers do nothing."""

    __slots__ = ("ended",)

    def __init__(self) -> None:
        self.ended = False


class _Opened:
    """Memory of another process, opened from its handle until close()."""

    def __init__(self, parent: IpcHandle) -> None:
        self._parent = parent
        self._memory: Any = None

    def open(self, context: Any) -> Any:
        parent = self._parent
        if parent.base is not None:
            raise ValueError("opening IpcHandle from original process")
        if self._memory is not None:
            raise ValueError("IpcHandle is already opened")
        address = _loam.ipc_open(_handle_bytes(parent.handle), parent.offset, parent.size,
                                 int(context.device.id))
        self._memory = MemoryPointer(weakref.proxy(context), _device_pointer(address), parent.size)
        return self._memory.own()

    def close(self) -> None:
        if self._memory is None:
            raise ValueError("IpcHandle not opened")
        memory, self._memory = self._memory, None
        _loam.ipc_close(_address(memory.handle))


class _Staged:
    """A copy of another process's memory, for a device that cannot access that memory directly."""

    def __init__(self, parent: IpcHandle) -> None:
        self._parent = parent

    def open(self, context: Any) -> Any:
        from numba import cuda

        source = int(numba_driver.Device.from_identity(self._parent.source_info).id)
        opened = _Opened(self._parent)
        with cuda.gpus[source]:
            there = opened.open(cuda.devices.get_context())
        try:
            memory = context.memalloc(self._parent.size)
            numba_driver.device_to_device(memory, there, self._parent.size)
        finally:
            with cuda.gpus[source]:
                opened.close()
        return memory

    def close(self) -> None:
        """Does nothing: Numba owns the copy and frees it."""


class LoamIpcHandle(IpcHandle):  # type: ignore[misc]
    """A handle of memory that is mapped to a range of addresses (pool = "cache"). The driver's own
    handles cannot name such memory, so loam opens it. The class is pickled by its name, so the
    other process needs the package, but not the plug-in. Other memory has Numba's IpcHandle, which
    any process opens."""

    _impl: Any  # Numba's attribute: the object that opened the memory, None before

    def _open_by(self, way: type, context: Any) -> Any:
        if self._impl is not None:
            raise ValueError("IpcHandle is already opened")
        opener = way(self)
        memory = opener.open(context)
        self._impl = opener
        return memory

    def open_direct(self, context: Any) -> Any:
        return self._open_by(_Opened, context)

    def open_staged(self, context: Any) -> Any:
        self._sentry_source_info()
        return self._open_by(_Staged, context)


class Manager(BaseCUDAMemoryManager):  # type: ignore[misc]
    """loam as Numba's memory manager, for device, pinned, mapped and managed memory."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._device = 0
        self._life = _Life()
        self._kept: dict[object, Any] = {}  # memory that Numba itself does not keep alive

    def initialize(self) -> None:
        with numba_driver.driver.get_active_context() as active:
            self._device = active.devnum or 0
        _loam.manager_initialize(self._device)
        _loam.defer_limit(config.CUDA_DEALLOCS_COUNT, config.CUDA_DEALLOCS_RATIO)

    @property
    def interface_version(self) -> int:
        return 1

    # ---- Allocation

    def _allocate(self, function: Callable[..., int], size: int, *rest: int) -> int:
        try:
            return function(current_tag(), _TAG, self._device, size, *rest)
        except NoMemoryError as error:
            raise numba_driver.CudaAPIError(_OUT_OF_MEMORY, f"out of memory: {error}") from error

    def _finalizer(self, address: int, size: int) -> Callable[[], None]:
        """Returns a finalizer. It holds no reference to the manager or the context, so they can
        end."""
        life, device = self._life, self._device

        def free() -> None:
            if not life.ended:
                _loam.manager_free(device, address, size)
        return free

    def memalloc(self, size: int) -> Any:
        address = self._allocate(_loam.manager_alloc, size)
        return MemoryPointer(weakref.proxy(self.context), _device_pointer(address), size,
                             finalizer=self._finalizer(address, size))

    def _keep(self, make: Callable[..., Any], pointer: Any, size: int, free: Callable[[], None],
              **owner: Any) -> Any:
        """Makes memory whose references Numba counts, and keeps it until the last object that Numba
        derived from it ends. One range of host memory may be mapped several times, so its address
        is no key."""
        kept, key = self._kept, object()

        def end() -> None:
            kept.pop(key, None)
            free()
        kept[key] = make(weakref.proxy(self.context), pointer, size, finalizer=end, **owner)
        return kept[key].own()

    def memallocmanaged(self, size: int, attach_global: bool) -> Any:
        address = self._allocate(_loam.manager_managed, size)
        return self._keep(ManagedMemory, _device_pointer(address), size,
                          self._finalizer(address, size))

    def memhostalloc(self, size: int, mapped: bool = False, portable: bool = False,
                     wc: bool = False) -> Any:
        flags = _MAPPED * mapped | _PORTABLE * portable | _WRITE_COMBINED * wc
        address = self._allocate(_loam.manager_pinned, size, flags)
        return self._of_host(address, size, None, mapped, self._finalizer(address, size))

    def mempin(self, owner: Any, pointer: Any, size: int, mapped: bool = False) -> Any:
        address, life, device = _address(pointer), self._life, self._device
        _loam.manager_pin(device, address, size, _MAPPED * mapped)

        def unpin() -> None:  # not deferred: the owner may free the memory next
            if not life.ended:
                _loam.manager_unpin(device, address, size)
        return self._of_host(address, size, owner, mapped, unpin)

    def _of_host(self, address: int, size: int, owner: Any, mapped: bool,
                 free: Callable[[], None]) -> Any:
        pointer = _host_pointer(address)
        if mapped:
            return self._keep(MappedMemory, pointer, size, free, owner=owner)
        return PinnedMemory(weakref.proxy(self.context), pointer, size, owner=owner,
                            finalizer=free)

    # ---- The rest

    def get_ipc_handle(self, memory: Any) -> Any:
        try:
            handle, offset, is_plain = _loam.manager_ipc(self._device, _address(memory.handle))
        except Error as error:
            raise RuntimeError(str(error)) from error
        kind = IpcHandle if is_plain else LoamIpcHandle
        return kind(memory, _ipc_handle(handle), memory.size,
                    self.context.device.get_device_identity(), offset=offset)

    def get_memory_info(self) -> Any:
        free, total = _loam.device_memory(self._device)
        return MemoryInfo(free=free, total=total)

    def reset(self) -> None:
        life, self._life = self._life, _Life()
        life.ended = True
        self._kept.clear()
        _loam.manager_reset(int(self.context.device.id))  # Numba may not have called initialize

    @contextlib.contextmanager
    def defer_cleanup(self) -> Iterator[None]:
        _loam.defer_enter()
        try:
            yield
        finally:
            _loam.defer_leave()
