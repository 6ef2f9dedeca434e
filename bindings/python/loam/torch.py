"""loam's memory for PyTorch.

    loam.torch.install()                      # before PyTorch uses CUDA
    with loam.tag("train.step", everywhere=True):
        loss = model(batch).sum()
        loss.backward()

install() makes loam PyTorch's CUDA allocator for the whole process, as a CUDAPluggableAllocator.
Without it, a pool gives loam's memory to a part of a program:

    pool = loam.torch.pool()
    with torch.cuda.use_mem_pool(pool):
        cache = torch.empty(1 << 20, device="cuda")

Tags. In a Python thread the tag is the loam.tag that was entered there. PyTorch also allocates in
threads of its own, for example in the backward pass; there the tag is the one in force everywhere
(loam.tag("...", everywhere=True)). Without either, the tag is "torch.data". A block keeps its tag,
whichever thread frees it. A library that allocates without the interpreter's lock gets the tag that
the thread entered last, even if asyncio runs several tasks in the thread.

Streams. Memory is ready for the stream that PyTorch names, and a freed block can be reused on that
stream. Blocks that were passed to Tensor.record_stream are collected when they are freed, and given
back after one wait for the device.

Failures raise torch.OutOfMemoryError. After install(), PyTorch's figures (memory_allocated,
max_memory_allocated, memory_stats and memory_summary of torch.cuda, and their resets) describe the
memory that PyTorch has from loam, and torch.cuda.empty_cache() gives back the memory that loam
keeps for reuse. In a pool, PyTorch's own allocator takes pieces of 2 MiB and more from loam and
cuts them up; a piece has the tag under which it was taken.

Sleep. loam.sleep(tag) gives the memory of tensors back to the driver for a while, and
loam.wake(tag) takes it back: tensors keep their addresses and contents. The policy has to give
loam.device { pool = "sleep" }. With one pool for each model, each model sleeps by itself.
"""

from __future__ import annotations

from typing import Any

from . import _loam, tags

try:
    import torch
    from torch.cuda.memory import CUDAPluggableAllocator
except ImportError as error:
    raise ImportError("loam.torch needs PyTorch, and PyTorch is not installed: "
                      "pip install torch") from error

__all__ = ["allocator", "install", "is_installed", "pool"]

_allocator: Any = None
_is_installed = False

# By device: the largest reserved size so far; the bytes and blocks made and freed up to the last
# reset.
_reserved: dict[int, int] = {}
_before: dict[int, tuple[int, int, int, int]] = {}

_Figure = dict[str, int]


def allocator() -> Any:
    """Returns the torch.cuda.memory.CUDAPluggableAllocator that allocates from loam."""
    global _allocator
    if _allocator is None:
        tags.tell_entries()
        made = CUDAPluggableAllocator(_loam.__file__, "loam_torch_alloc", "loam_torch_free")
        record, trim = _loam.torch_entries(torch._C.__file__)
        for name, function in (("set_record_stream_fn", record), ("set_reset_fn", trim)):
            hear = getattr(made.allocator(), name, None)
            if hear is not None:  # older versions of PyTorch lack it
                hear(function)
        _allocator = made
    return _allocator


def install() -> None:
    """Makes loam PyTorch's CUDA allocator for the process.

    PyTorch allows this only before its first allocation of CUDA memory, and cannot undo it.
    """
    global _is_installed
    if not _is_installed:
        torch.cuda.memory.change_current_allocator(allocator())
        _tell_figures()
        _is_installed = True


def is_installed() -> bool:
    """Returns True after install()."""
    return _is_installed


def pool() -> Any:
    """Returns a torch.cuda.MemPool of loam's memory, for torch.cuda.use_mem_pool.

    Raises ImportError with PyTorch before 2.5, which has no MemPool.
    """
    if not hasattr(torch.cuda, "MemPool"):
        raise ImportError(f"PyTorch {torch.__version__} has no torch.cuda.MemPool: it needs 2.5")
    return torch.cuda.MemPool(allocator().allocator())


# ---- PyTorch's figures: PyTorch does not query a pluggable allocator for them

def _figure(current: int, peak: int, made: int, freed: int) -> _Figure:
    return {"current": current, "peak": peak, "allocated": made, "freed": freed}


def _sorts(of_all: _Figure) -> dict[str, _Figure]:
    """Returns a figure by PyTorch's kinds of pools; loam does not separate small blocks."""
    return {"all": of_all, "small_pool": _figure(0, 0, 0, 0), "large_pool": of_all}


def _memory_stats(device: int) -> dict[str, Any]:
    live, most, made, blocks, most_blocks, made_blocks, failures = _loam.torch_figures(device)
    held = _loam.device_info(device)["reserved"]
    most_held = _reserved[device] = max(_reserved.get(device, 0), held, most)
    start = _before.get(device, (0, 0, 0, 0))
    size = _sorts(_figure(live, most, made - start[0], made - live - start[1]))
    count = _sorts(_figure(blocks, most_blocks, made_blocks - start[2],
                           made_blocks - blocks - start[3]))
    none = _figure(0, 0, 0, 0)
    return {
        "allocation": count, "active": count, "allocated_bytes": size, "active_bytes": size,
        "requested_bytes": size, "reserved_bytes": _sorts(_figure(held, most_held, held, 0)),
        "segment": _sorts(none), "inactive_split": _sorts(none),
        "inactive_split_bytes": _sorts(none), "oversize_allocations": none,
        "oversize_segments": none, "num_ooms": failures, "num_alloc_retries": 0,
        "num_sync_all_streams": 0, "num_device_alloc": 0, "num_device_free": 0,
        "max_split_size": -1,
    }


def _reset_peaks(device: int) -> None:
    _loam.torch_reset_peaks(device)
    _reserved[device] = 0


def _reset_sums(device: int) -> None:
    live, _, made, blocks, _, made_blocks, _ = _loam.torch_figures(device)
    _before[device] = made, made - live, made_blocks, made_blocks - blocks


def _tell_figures() -> None:
    """Replaces the C functions from which torch.cuda reads its figures."""
    for name, function in (("_cuda_memoryStats", _memory_stats),
                           ("_cuda_resetPeakMemoryStats", _reset_peaks),
                           ("_cuda_resetAccumulatedMemoryStats", _reset_sums)):
        if hasattr(torch._C, name):
            setattr(torch._C, name, function)
