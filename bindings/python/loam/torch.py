"""loam's memory for PyTorch.

    loam.torch.install()                      # before PyTorch uses CUDA
    with loam.tag("train.step", everywhere=True):
        loss = model(batch).sum()
        loss.backward()

install() makes loam the allocator of the process, by CUDAPluggableAllocator. Without it, a pool
gives loam's memory to a part of a program:

    pool = loam.torch.pool()
    with torch.cuda.use_mem_pool(pool):
        cache = torch.empty(1 << 20, device="cuda")

PyTorch allocates in threads of its own as well: the backward pass runs in them. There the tag is
the one in force everywhere (loam.tag("...", everywhere=True)), else "torch.data"; in a thread of
Python's it is that of the loam.tag entered there. A block keeps the tag that it was allocated with,
whichever thread frees it. What a library calls without the interpreter's lock sees the tag that the
thread entered last, also where asyncio runs several tasks in it.

Memory is ready for the stream that PyTorch names, and freed for reuse on it. What was given to
Tensor.record_stream is collected and given back after one wait for the device.
"""

from __future__ import annotations

from typing import Any

from . import _loam, tags

try:
    import torch
    from torch.cuda.memory import CUDAPluggableAllocator
except ImportError as error:
    raise ImportError("loam.torch gives PyTorch its memory, and PyTorch is not installed: "
                      "pip install torch") from error

__all__ = ["allocator", "install", "is_installed", "pool"]

_allocator: Any = None
_is_installed = False


def allocator() -> Any:
    """The torch.cuda.memory.CUDAPluggableAllocator whose functions are loam's."""
    global _allocator
    if _allocator is None:
        tags.tell_entries()
        made = CUDAPluggableAllocator(_loam.__file__, "loam_torch_alloc", "loam_torch_free")
        hear = getattr(made.allocator(), "set_record_stream_fn", None)
        if hear is not None:  # not in the first of them
            hear(_loam.entries_record())
        _allocator = made
    return _allocator


def install() -> None:
    """loam as the allocator of the process; PyTorch allows it before its first CUDA memory only."""
    global _is_installed
    if not _is_installed:
        torch.cuda.memory.change_current_allocator(allocator())
        _is_installed = True


def is_installed() -> bool:
    return _is_installed


def pool() -> Any:
    """A torch.cuda.MemPool of loam's memory, for torch.cuda.use_mem_pool."""
    if not hasattr(torch.cuda, "MemPool"):
        raise ImportError(f"PyTorch {torch.__version__} has no torch.cuda.MemPool: 2.5 brought it")
    return torch.cuda.MemPool(allocator().allocator())
