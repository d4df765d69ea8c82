"""XLA's conversions between element types, in the words of a rule.

A float is rounded to a narrower one to nearest, ties to even. It becomes an integer towards zero, within the integer's
limits, and NaN becomes 0. What is no f32 becomes an f16 or a bf16 by way of an f32.

Source: operation semantics of XLA (openxla.org), and where these leave room, what XLA computes on CPUs.
"""

from __future__ import annotations

from anycore.optimizers import hlo_integers
from anycore.optimizers.hlo_bits import bits_of, from_bits, is_nan, rounded
from anycore.optimizers.hlo_source import Source, Value
from anycore.optimizers.hlo_types import BF16, F16, F64, PRED, S64, U32, U64, ElementType


def fitted(source: Source, result: ElementType, value: Value) -> Value:
    """Returns a value of the carrier as one of the type `result`, rounded or wrapped around."""
    if result.is_integer:
        return hlo_integers.fitted(source, result, value)
    return from_bits(source, result, bits_of(source, result, value)) if result in (F16, BF16) else value.as_type(result)


def convert(source: Source, result: ElementType, a: Value) -> Value:
    """Returns the number of that type which is nearest, or as near as the docstring above says."""
    if a.element_type == result:
        return a
    if result == PRED:
        return source.write(PRED, "{0} != {1}", a, source.number(a.element_type, 0))
    if a.element_type == PRED:
        return source.choose(a, source.number(result, 1), source.number(result, 0))
    if a.element_type.is_float:
        return _float_to_float(source, result, a) if result.is_float else _float_to_integer(source, result, a)
    return _integer_to_float(source, result, a) if result.is_float else _integer_to_integer(source, result, a)


def _float_to_float(source: Source, result: ElementType, a: Value) -> Value:
    carrier = result.carrier
    return fitted(source, result, source.write(carrier, f"float{carrier.bits}({{0}})", a))


def _float_to_integer(source: Source, result: ElementType, a: Value) -> Value:
    wide, carrier = a.element_type.carrier, result.carrier
    zero, low, beyond, middle = (
        source.number(wide, number) for number in (0, result.lowest, result.highest + 1, 1 << result.bits - 1)
    )
    is_within = source.write(PRED, "({0} >= {1}) & ({0} < {2})", a, low, beyond)
    inside = source.choose(is_within, a, zero)
    if result == carrier.unsigned:
        # The upper half of the numbers is the lower one with the first bit set.
        is_high = source.write(PRED, "{0} >= {1}", inside, middle)
        lowered = source.write(wide, "{0} - {1}", inside, source.choose(is_high, middle, zero))
        turned = source.choose(is_high, source.number(carrier, carrier.lowest), source.number(carrier, 0))
        whole = source.write(carrier, "{0} ^ {1}", source.write(carrier, "{0}", lowered), turned)
    else:
        whole = source.write(carrier, "{0}", inside)
    below = source.choose(
        source.write(PRED, "{0} < {1}", a, low), *(source.number(result, n) for n in (result.lowest, 0))
    )
    limit = source.choose(source.write(PRED, "{0} >= {1}", a, beyond), source.number(result, result.highest), below)
    return source.choose(is_within, whole.as_type(result), limit)


def _integer_to_float(source: Source, result: ElementType, a: Value) -> Value:
    carrier, given = result.carrier, a.element_type
    if given == U32 and carrier == F64:
        a = _integer_to_integer(source, S64, a)
    number = source.write(carrier, f"float{carrier.bits}({{0}})", a)
    if a.element_type in (U32, U64):
        # What has the sign bit is halved, and twice that is rounded as the whole, since the lost bit is kept below.
        one, highest = source.number(given.carrier, 1), source.number(given.carrier, given.carrier.highest)
        halved = source.write(given.carrier, "(({0} >> {1}) & {2}) | ({0} & {1})", a, one, highest)
        twice = source.write(carrier, f"float{carrier.bits}({{0}}) * {{1}}", halved, source.number(carrier, 2))
        is_high = source.write(PRED, "{0} < {1}", a, source.number(given.carrier, 0))
        number = source.choose(is_high, twice, number)
    return fitted(source, result, number)


def _integer_to_integer(source: Source, result: ElementType, a: Value) -> Value:
    given, carrier = a.element_type, result.carrier
    if given.carrier != carrier:
        a = source.write(carrier, "{0}", a)
        if given == U32:
            a = source.write(carrier, "{0} & {1}", a, source.number(carrier, U32.highest))
    return hlo_integers.fitted(source, result, a)


def bitcast_convert(source: Source, result: ElementType, a: Value) -> Value:
    """Returns what the same bits mean as another type of as many."""
    if a.element_type == result:
        return a
    bits = bits_of(source, a.element_type, a) if a.element_type.is_float else a
    return from_bits(source, result, bits) if result.is_float else hlo_integers.fitted(source, result, bits)


def reduce_precision(source: Source, result: ElementType, a: Value, *, exponent_bits: int, mantissa_bits: int) -> Value:
    """Returns the nearest float of so many bits; one too large is infinite, one too small for a normal one is 0."""
    pattern = bits_of(source, result, a)
    carrier = pattern.element_type.carrier
    fraction, bias, new_bias = result.mantissa_bits, result.bias, (1 << exponent_bits - 1) - 1
    sign_bit = 1 << result.bits - 1
    magnitude = source.write(carrier, "{0} & {1}", pattern, source.number(carrier, sign_bit - 1))
    if mantissa_bits < fraction:
        magnitude = rounded(source, magnitude, fraction - mantissa_bits)
    if exponent_bits < result.exponent_bits:
        infinite, too_large, normal = (
            source.number(carrier, exponent << fraction)
            for exponent in (2 * bias + 1, bias + new_bias + 1, bias - new_bias + 1)
        )
        is_large = source.write(PRED, "{0} >= {1}", magnitude, too_large)
        is_small = source.write(PRED, "{0} < {1}", magnitude, normal)
        magnitude = source.choose(is_small, source.number(carrier, 0), source.choose(is_large, infinite, magnitude))
    pattern = source.write(carrier, "({0} & {1}) | {2}", pattern, source.number(carrier, sign_bit), magnitude)
    return source.choose(is_nan(source, a), a, from_bits(source, result, pattern))
