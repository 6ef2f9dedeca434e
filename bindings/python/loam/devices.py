"""The properties of devices (GPUs), and the device memory that loam has.

    for device in range(loam.device_count()):
        info = loam.device_info(device)
        print(info.name, info.used, "of", info.reserved, "bytes are in use")
    loam.device_trim()         # gives the driver the memory in which no block lives
    loam.device_keep(1 << 30)  # from now on each pool keeps at most 1 GiB
"""

from __future__ import annotations

import operator
from typing import NamedTuple

from . import _loam
from .errors import InvalidError

__all__ = ["DeviceInfo", "device_count", "device_info", "device_keep", "device_trim"]


class DeviceInfo(NamedTuple):
    """The properties of a device, and its memory; pinned memory of the host is not in it.

    name: the driver's name for the device.
    free, total: bytes of the device that no process uses, and all of its bytes.
    reserved: bytes that loam has from the driver, in use or not.
    used: bytes of `reserved` in live blocks.
    node: the device's NUMA node; -1 means that it is not known.
    has_ranges: whether a pool grows in one address range, so no fragments lie between its pieces.
    has_pools: whether pool = "driver" can be served.
    has_managed: whether loam.managed {} can be served.
    """

    name: str
    free: int
    total: int
    reserved: int
    used: int
    node: int
    has_ranges: bool
    has_pools: bool
    has_managed: bool


def device_count() -> int:
    """Returns the number of devices; 0 if no device can be used."""
    return _loam.device_count()


def device_info(device: int = 0) -> DeviceInfo:
    """Returns the properties of a device; devices are numbered from 0.

    Raises InvalidError if this device does not exist, and StateError if there are no devices.
    """
    info = _loam.device_info(device)
    free, _ = _loam.device_memory(device)
    return DeviceInfo(free=free, **info)


def device_trim(device: int | None = None) -> int:
    """Gives the driver the device and pinned memory of loam's pools in which no block lives.

    device: its number; None means all devices. Waits for work that may use freed memory. Returns
    how many bytes went back, of the device and of pinned memory. Raises like device_info if the
    device does not exist.
    """
    if device is None:
        return _loam.device_trim(-1)
    _loam.device_info(device)
    return _loam.device_trim(device)


def device_keep(size: int | None) -> None:
    """Sets how many bytes each pool of a device keeps for reuse; None means all of them.

    The initial value is 0. Memory beyond that goes back to the driver without a call, after it was
    unused for about half a second. Raises InvalidError if the size is negative.
    """
    if size is not None:
        size = operator.index(size)
        if size < 0:
            raise InvalidError(f"size {size}: it is negative")
    _loam.device_keep(size)
