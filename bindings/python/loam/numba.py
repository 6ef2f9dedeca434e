"""loam's memory for code that Numba compiles, and for Numba's device memory.

    ALLOCATOR = loam.numba.allocator("solver.grid")

    @numba.njit
    def make(n):
        return loam.numba.empty(n, numpy.float64, ALLOCATOR)

allocator() returns the address of an NRT_ExternalAllocator, a table that Numba documents for C
code. Its blocks are allocated under a tag by the live policy; any code that accepts such a table
can use it. empty() makes an array from it through Numba's own runtime, which counts the references
and frees the array: numba.core.runtime.rtsys.get_allocation_stats() counts it like every other
array.

Pass the allocator as an argument to functions that are compiled with cache=True, because an address
is valid in one process only. To make loam Numba's manager of device memory too, run

    NUMBA_CUDA_MEMORY_MANAGER=loam.numba python program.py

or call numba.cuda.set_memory_manager(loam.numba.Manager) before CUDA is used. Then loam serves
Numba's device, pinned and managed memory, under the loam.tag in force or "numba.cuda".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.registry import cpu_target
from numba.core.runtime import rtsys
from numba.core.typing.npydecl import parse_dtype
from numba.extending import intrinsic, overload
from numba.np.arrayobj import make_array, populate_array
from numba.np.numpy_support import as_dtype

from . import _loam

__all__ = ["Manager", "allocator", "empty"]

_ALLOCATE_EXTERNAL = 1  # index of allocate_external in NRT_api_functions

_allocators: dict[str, int] = {}

# Numba's table is empty until its runtime is initialized. Newer versions do that when they compile.
rtsys.initialize(cpu_target.target_context)


def allocator(tag: str = "numba.data") -> int:
    """Returns the address of the NRT_ExternalAllocator of a tag; equal tags have the same address.

    The table lives as long as the process. Raises InvalidError if the tag is not valid.
    """
    found = _allocators.get(tag)
    if found is None:
        found = _allocators.setdefault(tag, _loam.nrt_allocator(tag))
    return found


def _call_allocate(context: Any, builder: Any, size: Any, table: Any) -> Any:
    """Builds a call of allocate_external(size, table): a MemInfo with one reference, or NULL."""
    pointer = cgutils.voidptr_t
    function = ir.FunctionType(pointer, [cgutils.intp_t, pointer]).as_pointer()
    api = builder.bitcast(context.nrt.get_nrt_api(builder), function.as_pointer())
    place = builder.gep(api, [ir.Constant(cgutils.int32_t, _ALLOCATE_EXTERNAL)])
    return builder.call(builder.load(place), [size, builder.inttoptr(table, pointer)])


@intrinsic
def _empty(typingctx: Any, length: Any, dtype: Any, table: Any) -> Any:
    """Makes an array of one dimension; the caller has checked `length`."""
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


@intrinsic
def _same_kind(typingctx: Any, shape: Any) -> Any:
    """Makes a tuple of integers of one type from one of several types."""
    made = types.UniTuple(types.intp, len(shape))

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        parts = cgutils.unpack_tuple(builder, args[0])
        cast = [context.cast(builder, part, kind, types.intp) for part, kind in zip(parts, shape)]
        return context.make_tuple(builder, made, cast)

    return made(shape), codegen


def empty(shape: Any, dtype: Any, table: int) -> Any:
    """Like numpy.empty(shape, dtype), with memory of the allocator at `table`.

    Only compiled code can call it. `shape` is a number or a tuple of numbers. Raises MemoryError if
    there is no memory, or if the policy denies it.
    """
    raise TypeError("loam.numba.empty is for compiled code; elsewhere, numpy.empty in a loam.tag")


@overload(empty)
def _overload_empty(shape: Any, dtype: Any, table: Any) -> Any:
    kind = parse_dtype(dtype)
    if kind is None or not isinstance(table, types.Integer):
        return None
    largest = (2**47 - 1) // max(as_dtype(kind).itemsize, 1)
    if isinstance(shape, types.Integer):
        def one(shape: Any, dtype: Any, table: Any) -> Any:
            if shape < 0:
                raise ValueError("negative dimensions are not allowed")
            if shape > largest:
                raise MemoryError("no address space is that large")
            return _empty(shape, dtype, table)
        return one
    if not isinstance(shape, types.BaseTuple):
        return None
    if not all(isinstance(extent, types.Integer) for extent in shape):
        return None
    if not len(shape):
        def none(shape: Any, dtype: Any, table: Any) -> Any:
            return _empty(1, dtype, table).reshape(())
        return none
    if isinstance(shape, types.UniTuple):
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

    def mixed(shape: Any, dtype: Any, table: Any) -> Any:
        return empty(_same_kind(shape), dtype, table)
    return mixed


if TYPE_CHECKING:
    from ._numba_cuda import Manager as Manager
else:
    def __getattr__(name: str) -> Any:
        """Imports the plug-in for numba.cuda at first use. Numba looks for the second name."""
        if name in ("Manager", "_numba_memory_manager"):
            from ._numba_cuda import Manager
            return Manager
        raise AttributeError(f"module 'loam.numba' has no attribute {name!r}")
