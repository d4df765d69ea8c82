"""XLA's arithmetic of integers, in the words of a rule.

Every operation wraps around. A narrow integer is computed in its carrier, of 32 bits, and then fitted; u32 and u64 are
computed as the signed integers of the same bits.

Source: operation semantics of XLA (openxla.org), where division by 0, division of the lowest number by -1 and shifts by
the width or more are defined; for powers, what XLA computes on CPUs.
"""

from __future__ import annotations

from anycore.optimizers.hlo_source import Source, Value
from anycore.optimizers.hlo_types import PRED, ElementType

_EXPONENT_BITS = 6


def fitted(source: Source, result: ElementType, value: Value) -> Value:
    """Returns the last bits of an integer of the carrier, as one of the type `result`."""
    carrier = result.carrier
    surplus = carrier.bits - result.bits
    if surplus and result.is_signed:
        shift = source.number(carrier, surplus)
        value = source.write(carrier, "{0} >> {1}", source.write(carrier, "{0} << {1}", value, shift), shift)
    elif surplus:
        value = source.write(carrier, "{0} & {1}", value, source.number(carrier, result.highest))
    return value.as_type(result)


def signed(source: Source, value: Value) -> Value:
    """Returns the signed integer of the same bits."""
    element_type = value.element_type
    return value if element_type.is_signed else fitted(source, element_type.signed, value)


def unsigned(source: Source, value: Value) -> Value:
    """Returns the unsigned integer of the same bits."""
    element_type = value.element_type
    return fitted(source, element_type.unsigned, value) if element_type.is_signed else value


def compared(source: Source, operator: str, a: Value, b: Value) -> Value:
    """Returns whether a stands to b as the operator says."""
    carrier = a.element_type.carrier
    if a.element_type == carrier.unsigned:
        # With the first bit turned, unsigned numbers are ordered as signed ones.
        turned = [source.write(carrier, "{0} ^ {1}", x, source.number(carrier, carrier.lowest)) for x in (a, b)]
        return source.write(PRED, f"{{0}} {operator} {{1}}", *turned)
    return source.write(PRED, f"{{0}} {operator} {{1}}", a, b)


def negated(source: Source, result: ElementType, a: Value) -> Value:
    """Returns -a."""
    return fitted(source, result, source.write(result.carrier, "{0} - {1}", source.number(result, 0), a))


def inverted(source: Source, result: ElementType, a: Value) -> Value:
    """Returns a with all bits turned."""
    return fitted(source, result, source.write(result.carrier, "{0} ^ {1}", a, source.number(result.carrier, -1)))


def absolute(source: Source, result: ElementType, a: Value) -> Value:
    """Returns |a|, of the lowest number itself."""
    return source.choose(compared(source, "<", a, source.number(result, 0)), negated(source, result, a), a)


def sign(source: Source, result: ElementType, a: Value) -> Value:
    """Returns -1, 0 or 1."""
    minus_one, zero, one = (source.number(result, number) for number in (-1, 0, 1))
    not_above = source.choose(compared(source, "<", a, zero), minus_one, zero)
    return source.choose(compared(source, ">", a, zero), one, not_above)


def maximum(source: Source, result: ElementType, a: Value, b: Value) -> Value:
    """Returns the greater one."""
    return source.choose(compared(source, "<", a, b), b, a)


def minimum(source: Source, result: ElementType, a: Value, b: Value) -> Value:
    """Returns the lesser one."""
    return source.choose(compared(source, "<", b, a), b, a)


def clamp(source: Source, result: ElementType, low: Value, a: Value, high: Value) -> Value:
    """Returns a within low … high."""
    return minimum(source, result, maximum(source, result, a, low), high)


def divide(source: Source, result: ElementType, a: Value, b: Value) -> Value:
    """Returns a/b rounded towards zero; a/0 has all bits set, and the lowest number divided by -1 is itself."""
    carrier = result.carrier
    minus_one, zero, one = (source.number(carrier, number) for number in (-1, 0, 1))
    by_zero = source.write(PRED, "{0} == {1}", b, zero)
    divisor = source.choose(by_zero, one, b).as_type(result)
    if result == carrier.unsigned:
        quotient = _divide_unsigned(source, result, a, divisor)
    else:
        by_minus_one = source.write(PRED, "{0} == {1}", b, minus_one)
        quotient = source.write(carrier, "quotient({0}, {1})", a, source.choose(by_minus_one, one, divisor))
        quotient = source.choose(by_minus_one, negated(source, carrier, a), quotient)
    return fitted(source, result, source.choose(by_zero, minus_one, quotient))


def _divide_unsigned(source: Source, result: ElementType, a: Value, b: Value) -> Value:
    """Returns a/b of integers as wide as their carrier; b is not 0."""
    carrier = result.carrier
    zero, one = (source.number(carrier, number) for number in (0, 1))
    # Half of a is below the sign bit; twice its quotient is right or one too low.
    halved = shift_right_logical(source, result, a, one)
    low = source.write(carrier, "quotient({0}, {1}) << {2}", halved, b, one)
    rest = source.write(carrier, "{0} - {1} * {2}", a, low, b).as_type(result)
    more = source.choose(compared(source, ">=", rest, b), one, zero)
    # A divisor with the sign bit goes into a once, or not at all.
    once = source.choose(compared(source, ">=", a, b), one, zero)
    return source.choose(source.write(PRED, "{0} < {1}", b, zero), once, source.write(carrier, "{0} + {1}", low, more))


def remainder(source: Source, result: ElementType, a: Value, b: Value) -> Value:
    """Returns what a/b leaves, with the sign of a; of a division by 0, a itself."""
    quotient = divide(source, result, a, b)
    return fitted(source, result, source.write(result.carrier, "{0} - {1} * {2}", a, quotient, b))


def power(source: Source, result: ElementType, base: Value, exponent: Value) -> Value:
    """Returns base ** exponent, a signed number of which six bits count, and if it is negative 1/base towards zero."""
    carrier = result.carrier
    minus_one, zero, one = (source.number(carrier, number) for number in (-1, 0, 1))
    base, exponent = (signed(source, operand).as_type(carrier) for operand in (base, exponent))
    known = exponent.number
    product, square = one, base
    for k in range(_EXPONENT_BITS if known is None else min(_EXPONENT_BITS, int(known).bit_length())):
        bit = source.write(PRED, "(({0} >> {1}) & {2}) == {2}", exponent, source.number(carrier, k), one)
        product = source.choose(bit, source.write(carrier, "{0} * {1}", product, square), product)
        square = source.write(carrier, "{0} * {0}", square)
    is_odd = source.write(PRED, "({0} & {1}) == {1}", exponent, one)
    of_minus_one = source.choose(is_odd, minus_one, one)
    of_others = source.choose(source.write(PRED, "{0} == {1}", base, one), one, zero)
    inverse = source.choose(source.write(PRED, "{0} == {1}", base, minus_one), of_minus_one, of_others)
    is_negative = source.write(PRED, "{0} < {1}", exponent, zero)
    return fitted(source, result, source.choose(is_negative, inverse, product))


def shift_left(source: Source, result: ElementType, a: Value, by: Value) -> Value:
    """Returns a·2^by, 0 where `by` is not in [0, width)."""
    amount, is_within = _amount(source, result, by)
    shifted = source.write(result.carrier, "{0} << {1}", a, amount)
    return fitted(source, result, source.choose(is_within, shifted, source.number(result.carrier, 0)))


def shift_right_logical(source: Source, result: ElementType, a: Value, by: Value) -> Value:
    """Returns a shifted, zeros first, 0 where `by` is not in [0, width)."""
    carrier = result.carrier
    amount, is_within = _amount(source, result, by)
    shifted = source.write(carrier, "{0} >> {1}", unsigned(source, a), amount)
    if result.bits == carrier.bits:
        copies = source.write(
            carrier, "({0} >> {1}) << {2}", source.number(carrier, carrier.lowest), amount, source.number(carrier, 1)
        )
        shifted = source.write(carrier, "{0} & {1}", shifted, inverted(source, carrier, copies))
    return fitted(source, result, source.choose(is_within, shifted, source.number(carrier, 0)))


def shift_right_arithmetic(source: Source, result: ElementType, a: Value, by: Value) -> Value:
    """Returns a shifted, copies of its first bit first, and nothing but these where `by` is not in [0, width)."""
    amount, is_within = _amount(source, result, by)
    amount = source.choose(is_within, amount, source.number(result.carrier, result.bits - 1))
    return fitted(source, result, source.write(result.carrier, "{0} >> {1}", signed(source, a), amount))


def _amount(source: Source, result: ElementType, by: Value) -> tuple[Value, Value]:
    """Returns how far a shift goes if it stays within the width, and whether it does."""
    amount = source.write(result.carrier, "{0} & {1}", by, source.number(result.carrier, result.bits - 1))
    return amount, source.write(PRED, "{0} == {1}", amount, by)


def population_count(source: Source, result: ElementType, a: Value) -> Value:
    """Returns how many bits are set, added in fields of two, four and eight bits, then all bytes by a product."""
    carrier = result.carrier
    twos, fours, eights, bytes_ = (
        source.number(carrier, int(pattern * (carrier.bits // 8), 16)) for pattern in ("55", "33", "0f", "01")
    )
    one, two, four, last = (source.number(carrier, number) for number in (1, 2, 4, carrier.bits - 8))
    a = unsigned(source, a)
    count = source.write(carrier, "{0} - (({0} >> {1}) & {2})", a, one, twos)
    count = source.write(carrier, "({0} & {2}) + (({0} >> {1}) & {2})", count, two, fours)
    count = source.write(carrier, "({0} + ({0} >> {1})) & {2}", count, four, eights)
    return source.write(carrier, "{0} >> {1}", source.write(carrier, "{0} * {1}", count, bytes_), last).as_type(result)


def count_leading_zeros(source: Source, result: ElementType, a: Value) -> Value:
    """Returns how many bits stand before the first that is set."""
    carrier = result.carrier
    a, shift = unsigned(source, a), 1
    while shift < result.bits:
        # All bits after the first that is set become set.
        a = source.write(carrier, "{0} | ({0} >> {1})", a, source.number(carrier, shift))
        shift *= 2
    return population_count(source, result, inverted(source, result, a))
