"""The bits of floats of every type, in the words of a rule: those of f16 and bf16 come from the float32 they lie in.

Source: IEEE 754; a bf16 is the first half of a float32.
"""

from __future__ import annotations

from anycore.optimizers import hlo_integers
from anycore.optimizers.hlo_source import Source, Value
from anycore.optimizers.hlo_types import BF16, F16, F32, PRED, S32, U16, ElementType

_HALF = 0x3F000000
"""Bits of the float32 0.5."""


def bits_of(source: Source, element_type: ElementType, a: Value) -> Value:
    """Returns the bits that a float of the carrier has as one of that type, rounded to nearest, ties to even."""
    bits = source.write(element_type.carrier.signed, "bits({0})", a)
    if element_type == F16:
        return _half_bits(source, a, bits)
    if element_type == BF16:
        return _brain_bits(source, a, bits)
    return bits


def from_bits(source: Source, element_type: ElementType, bits: Value) -> Value:
    """Returns the float of that type with these bits."""
    if element_type == F16:
        return _from_half_bits(source, bits)
    if element_type == BF16:
        bits = source.write(S32, "{0} << {1}", bits, source.number(S32, 16))
    return source.write(element_type.carrier, "of_bits({0})", bits).as_type(element_type)


def rounded(source: Source, bits: Value, dropped: int) -> Value:
    """Returns bits without the last ones, the others rounded to nearest, ties to even."""
    carrier = bits.element_type.carrier
    last, one, below_half, kept = (
        source.number(carrier, number) for number in (dropped, 1, (1 << dropped - 1) - 1, -1 << dropped)
    )
    return source.write(carrier, "({0} + (({0} >> {1}) & {2}) + {3}) & {4}", bits, last, one, below_half, kept)


def is_nan(source: Source, a: Value) -> Value:
    """Returns whether a float is NaN."""
    return source.write(PRED, "{0} != {0}", a)


def _brain_bits(source: Source, a: Value, bits: Value) -> Value:
    sixteen, quiet = source.number(S32, 16), source.number(S32, 0x40)
    number = source.write(S32, "{0} >> {1}", rounded(source, bits, 16), sixteen)
    # Rounding might make an infinity of it, or a number.
    not_a_number = source.write(S32, "({0} >> {1}) | {2}", bits, sixteen, quiet)
    return hlo_integers.fitted(source, U16, source.choose(is_nan(source, a), not_a_number, number))


def _half_bits(source: Source, a: Value, bits: Value) -> Value:
    surplus, infinite, fraction, quiet, sign_bit, sixteen, half = (
        source.number(S32, number) for number in (13, 0x7C00, 0x3FF, 0x7E00, 0x8000, 16, _HALF)
    )
    size = source.write(S32, "{0} & {1}", bits, source.number(S32, S32.highest))
    rebiased = source.number(S32, F32.bias - F16.bias << F16.mantissa_bits)
    normal = source.write(S32, "({0} >> {1}) - {2}", rounded(source, size, 13), surplus, rebiased)
    normal = hlo_integers.minimum(source, S32, normal, infinite)
    # Added to a half, a number's last bit is that of a denormal f16.
    added = source.write(F32, "absolute({0}) + {1}", a, source.number(F32, 0.5))
    denormal = source.write(S32, "bits({0}) - {1}", added, half)
    is_denormal = source.write(PRED, "absolute({0}) < {1}", a, source.number(F32, 2.0 ** (1 - F16.bias)))
    not_a_number = source.write(S32, "(({0} >> {1}) & {2}) | {3}", size, surplus, fraction, quiet)
    size = source.choose(is_denormal, denormal, normal)
    size = source.choose(is_nan(source, a), not_a_number, size)
    return source.write(S32, "{0} | (({1} >> {2}) & {3})", size, bits, sixteen, sign_bit).as_type(U16)


def _from_half_bits(source: Source, bits: Value) -> Value:
    surplus, infinite, sixteen, sign_bit = (source.number(S32, number) for number in (13, 0x7C00, 16, 0x8000))
    size = source.write(S32, "{0} & {1}", bits, source.number(S32, 0x7FFF))
    rebias = F32.bias - F16.bias << F32.mantissa_bits
    # The exponent of infinity and NaN is the highest in both types.
    is_finite = source.write(PRED, "{0} < {1}", size, infinite)
    rebiased = source.choose(is_finite, source.number(S32, rebias), source.number(S32, 2 * rebias))
    normal = source.write(S32, "({0} << {1}) + {2}", size, surplus, rebiased)
    smallest = source.number(F32, 2.0 ** (1 - F16.bias - F16.mantissa_bits))
    denormal = source.write(S32, "bits({0})", source.write(F32, "float32({0}) * {1}", size, smallest))
    is_denormal = source.write(PRED, "{0} < {1}", size, source.number(S32, 1 << F16.mantissa_bits))
    size = source.choose(is_denormal, denormal, normal)
    bits = source.write(S32, "{0} | (({1} & {2}) << {3})", size, bits, sign_bit, sixteen)
    return source.write(F32, "of_bits({0})", bits).as_type(F16)
