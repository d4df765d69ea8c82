"""The bits of floats in compiled code."""

from __future__ import annotations

from numba import types
from numba.extending import intrinsic

_PATTERNS = {types.float32: types.int32, types.float64: types.int64}
_FLOATS = {pattern: number for number, pattern in _PATTERNS.items()}


def _same_bits(source, targets):
    """Signature of the type that belongs to `source`, and the code generator for its number with the same bits."""
    target = targets[source]

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], context.get_value_type(target))

    return target(source), generate


@intrinsic
def bits(typing_context, number):
    """The bits of a float32 as an int32, of a float64 as an int64."""
    return _same_bits(number, _PATTERNS)


@intrinsic
def of_bits(typing_context, pattern):
    """The float that has the bits of an int32 or an int64."""
    return _same_bits(pattern, _FLOATS)
