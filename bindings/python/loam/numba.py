"""loam's memory for code that Numba compiles.

    ALLOCATOR = loam.numba.allocator("solver.grid")

    @numba.njit
    def make(n):
        return loam.numba.empty(n, numpy.float64, ALLOCATOR)

allocator() gives the address of a table that Numba documents for C code, NRT_ExternalAllocator,
whose blocks are a tag's under the live policy; any code that takes such a table can be given it.
empty() makes an array from it through Numba's own run-time, which counts its references and frees
it: numba.core.runtime.rtsys.get_allocation_stats() counts it like any other.

Functions compiled with cache=True must be passed the allocator: an address is good for one process.

    NUMBA_CUDA_MEMORY_MANAGER=loam.numba python program.py

makes Numba's device, pinned and managed memory loam's as well; in a program,
numba.cuda.set_memory_manager(loam.numba.Manager) before CUDA is used. The tag is that of the
loam.tag in force, else "numba.cuda".
"""

from __future__ import annotations

from typing import Any

import numpy
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.registry import cpu_target
from numba.core.runtime import rtsys
from numba.core.typing.npydecl import parse_dtype
from numba.extending import intrinsic, overload
from numba.np.arrayobj import make_array, populate_array

from . import _loam

__all__ = ["Manager", "allocator", "empty"]

_ALLOCATE_EXTERNAL = 1  # its place in NRT_api_functions

_allocators: dict[str, int] = {}

# Until its run-time is set up Numba's table is empty; later Numbas do that when they compile.
rtsys.initialize(cpu_target.target_context)


def allocator(tag: str = "numba.data") -> int:
    """The address of the NRT_ExternalAllocator of a tag; same tag, same address."""
    found = _allocators.get(tag)
    if found is None:
        found = _allocators.setdefault(tag, _loam.nrt_allocator(tag))
    return found


def _call_allocate(context: Any, builder: Any, size: Any, table: Any) -> Any:
    """NRT_api_functions.allocate_external(size, table): a MemInfo with one reference, or NULL."""
    pointer = cgutils.voidptr_t
    function = ir.FunctionType(pointer, [cgutils.intp_t, pointer]).as_pointer()
    api = builder.bitcast(context.nrt.get_nrt_api(builder), function.as_pointer())
    place = builder.gep(api, [ir.Constant(cgutils.int32_t, _ALLOCATE_EXTERNAL)])
    return builder.call(builder.load(place), [size, builder.inttoptr(table, pointer)])


@intrinsic
def _empty(typingctx: Any, length: Any, dtype: Any, table: Any) -> Any:
    """An array of one dimension; `length` has been checked."""
    kind = parse_dtype(dtype)
    array_type = types.Array(kind, 1, "C")

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        length, _, table = args
        item = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind)))
        info = _call_allocate(context, builder, builder.mul(length, item), table)
        with builder.if_then(cgutils.is_null(builder, info), likely=False):
            context.call_conv.return_user_exc(builder, MemoryError, ("loam has no memory for it",))
        array = make_array(array_type)(context, builder)
        data = builder.bitcast(context.nrt.meminfo_data(builder, info), array.data.type)
        populate_array(array, data, shape=[length], strides=[item], itemsize=item, meminfo=info)
        return array._getvalue()

    return array_type(types.intp, dtype, types.uintp), codegen


def empty(shape: Any, dtype: Any, table: int) -> Any:
    """numpy.empty(shape, dtype) from the allocator at `table`; for compiled code.

    `shape` is a number or a tuple of numbers. MemoryError where the policy gives no memory.
    """
    raise TypeError("loam.numba.empty is for compiled code; elsewhere, numpy.empty in a loam.tag")


@overload(empty)
def _overload_empty(shape: Any, dtype: Any, table: Any) -> Any:
    kind = parse_dtype(dtype)
    if kind is None or not isinstance(table, types.Integer):
        return None
    largest = (2**47 - 1) // numpy.dtype(str(kind)).itemsize
    if isinstance(shape, types.Integer):
        def one(shape: Any, dtype: Any, table: Any) -> Any:
            if shape < 0:
                raise ValueError("negative dimensions are not allowed")
            if shape > largest:
                raise MemoryError("no address space is that large")
            return _empty(shape, dtype, table)
        return one
    if isinstance(shape, types.UniTuple) and isinstance(shape.dtype, types.Integer):
        def many(shape: Any, dtype: Any, table: Any) -> Any:
            length = 1
            for extent in shape:
                if extent < 0:
                    raise ValueError("negative dimensions are not allowed")
                if extent and length > largest // extent:
                    raise MemoryError("no address space is that large")
                length *= extent
            return _empty(length, dtype, table).reshape(shape)
        return many
    return None


def __getattr__(name: str) -> Any:
    """The plug-in for numba.cuda, which is imported with it; Numba knows it by the second name."""
    if name in ("Manager", "_numba_memory_manager"):
        from ._numba_cuda import Manager
        return Manager
    raise AttributeError(f"module 'loam.numba' has no attribute {name!r}")
