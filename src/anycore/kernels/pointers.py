"""Memory by address inside compiled code.

One kernel call serves tables of any size and dimension; Numba has no array of arrays, so tables, ids and gradients
reach a kernel as addresses. Whoever passes an address keeps its array alive during the call.
"""

from __future__ import annotations

from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

FLOAT_BYTES = 4
_CACHE_LINE = 64
_BURST = 4 * _CACHE_LINE


def _cast(dtype):
    """Code generator that turns an int64 into a pointer to `dtype`."""

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_data_type(dtype).as_pointer())

    return types.CPointer(dtype)(types.int64), generate


@intrinsic
def _float32_pointer(typing_context, address):
    return _cast(types.float32)


@intrinsic
def _int64_pointer(typing_context, address):
    return _cast(types.int64)


@intrinsic
def _prefetch_line(typing_context, address):
    def generate(context, builder, signature, arguments):
        byte_pointer, int32 = ir.IntType(8).as_pointer(), ir.IntType(32)
        signature = ir.FunctionType(ir.VoidType(), [byte_pointer, int32, int32, int32])
        function = cgutils.get_or_insert_function(builder.module, signature, "llvm.prefetch.p0")
        read, keep, data = int32(0), int32(3), int32(1)
        builder.call(function, [builder.inttoptr(arguments[0], byte_pointer), read, keep, data])
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def fetch_add(typing_context, counter, index):
    """Adds 1 to counter[index] (int64) atomically; returns the value before."""

    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.gep(array.data, [arguments[1]])
        return builder.atomic_rmw("add", pointer, ir.IntType(64)(1), "monotonic")

    return types.int64(counter, types.int64), generate


@intrinsic
def call_step(typing_context, function, record, gradient, dimension, settings):
    """Calls the function at an address: void(int64 record, int64 gradient, int64 dimension, int64 settings)."""

    def generate(context, builder, signature, arguments):
        int64 = ir.IntType(64)
        kind = ir.FunctionType(ir.VoidType(), [int64] * 4).as_pointer()
        builder.call(builder.inttoptr(arguments[0], kind), arguments[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), generate


@njit(nogil=True, cache=True)
def floats(address, size):
    """float32[size] at `address`, without a copy."""
    return carray(_float32_pointer(address), (size,))


@njit(nogil=True, cache=True)
def integers(address, size):
    """int64[size] at `address`, without a copy."""
    return carray(_int64_pointer(address), (size,))


@njit(nogil=True, cache=True)
def prefetch(address, size):
    """Asks for the cache lines of `size` bytes at `address`; for memory that is often in a cache, as gradients are."""
    for offset in range(0, size, _CACHE_LINE):
        _prefetch_line(address + offset)


@njit(nogil=True, cache=True)
def prefetch_record(address, size):
    """Asks for the cache lines of the first `size` bytes of a record, somewhere in a table."""
    # Four lines without a loop make a lookup of 64 columns a third faster; more than eight at once hinder each other.
    if _BURST <= size <= 2 * _BURST:
        _prefetch_line(address)
        _prefetch_line(address + _CACHE_LINE)
        _prefetch_line(address + 2 * _CACHE_LINE)
        _prefetch_line(address + 3 * _CACHE_LINE)
        prefetch(address + _BURST, size - _BURST)
    else:
        prefetch(address, size)
    _prefetch_line(address + size - 1)  # one line more where a record does not start at a cache line
