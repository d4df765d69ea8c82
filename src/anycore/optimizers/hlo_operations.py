"""XLA's element-wise operations by opcode and element types.

Source: operation semantics of XLA (openxla.org); opcode names of hlo_opcode.h, TensorFlow 2.21.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import signature

from anycore.optimizers import hlo_integers as integers
from anycore.optimizers.hlo_conversions import bitcast_convert, convert, fitted, reduce_precision
from anycore.optimizers.hlo_source import Source, Value
from anycore.optimizers.hlo_types import ELEMENT_TYPES, F64, FLOATS, INTEGERS, PRED, S32, SIGNED, ElementType

Operation = Callable[..., Value]
"""`(source, element type of the result, *operands) -> result`; reduce-precision takes numbers of bits by keyword."""

IDENTITIES = {"bitcast", "broadcast", "copy", "opt-barrier", "parameter", "reshape", "transpose"}
"""Opcodes whose result is their operand, as there is one element."""

INLINED = {"call", "fusion", "map"}
"""Opcodes that run another computation once, on their operands."""

Meaning = str | Operation
"""Expression of the operands {0}, {1}, … in the words of `vocabulary`, or an operation of several lines."""

_EXACT: dict[str, Meaning] = {
    "abs": "absolute({0})",
    "ceil": "ceil({0})",
    "clamp": "minimum(maximum({1}, {0}), {2})",
    "floor": "floor({0})",
    "maximum": "maximum({0}, {1})",
    "minimum": "minimum({0}, {1})",
    "negate": "-{0}",
    # Half away from zero differs from half to even only where that has rounded a half towards zero.
    "round-nearest-afz": "where(({0} - rint({0})) * TWO * sign({0}) == ONE, rint({0}) + sign({0}), rint({0}))",
    "round-nearest-even": "rint({0})",
    # A zero's sign stays.
    "sign": "where({0} == ZERO, {0}, sign({0}))",
}
"""Of floats, with results that need no rounding."""

_ROUNDED: dict[str, Meaning] = {
    "acos": "arccos({0})",
    "acosh": "arccosh({0})",
    "add": "{0} + {1}",
    "asin": "arcsin({0})",
    "asinh": "arcsinh({0})",
    "atan2": "arctan2({0}, {1})",
    "atanh": "arctanh({0})",
    "cbrt": "cbrt({0})",
    "cosh": "cosh({0})",
    "cosine": "cos({0})",
    "divide": "{0} / {1}",
    "erf": "erf({0})",
    "exponential": "exp({0})",
    "exponential-minus-one": "expm1({0})",
    "log": "log({0})",
    "log-plus-one": "log1p({0})",
    "logistic": "ONE / (ONE + exp(-{0}))",
    "multiply": "{0} * {1}",
    "remainder": "fmod({0}, {1})",
    "rsqrt": "ONE / sqrt({0})",
    "sine": "sin({0})",
    "sinh": "sinh({0})",
    "sqrt": "sqrt({0})",
    "subtract": "{0} - {1}",
    "tan": "sin({0}) / cos({0})",
    "tanh": "tanh({0})",
}
"""Of floats."""

_WRAPPED: dict[str, Meaning] = {
    "add": "{0} + {1}",
    "and": "{0} & {1}",
    "multiply": "{0} * {1}",
    "or": "{0} | {1}",
    "subtract": "{0} - {1}",
    "xor": "{0} ^ {1}",
}
"""Of integers, by their last bits."""

_LOGICAL: dict[str, Meaning] = {
    "add": "{0} | {1}",
    "and": "{0} & {1}",
    "maximum": "{0} | {1}",
    "minimum": "{0} & {1}",
    "multiply": "{0} & {1}",
    # False == operand, without writing a literal.
    "not": "({0} != {0}) == {0}",
    "or": "{0} | {1}",
    "xor": "{0} != {1}",
}
"""Of truths."""

_DIRECTIONS = {"EQ": "==", "NE": "!=", "GE": ">=", "GT": ">", "LE": "<=", "LT": "<"}


def _written(expression: str) -> Operation:
    def operation(source: Source, result: ElementType, *operands: Value) -> Value:
        return source.write(result.carrier, expression, *operands).as_type(result)

    return operation


def _written_and_fitted(expression: str) -> Operation:
    def operation(source: Source, result: ElementType, *operands: Value) -> Value:
        return fitted(source, result, source.write(result.carrier, expression, *operands))

    return operation


def _same(source: Source, result: ElementType, a: Value) -> Value:
    return a


def _no_imaginary_part(source: Source, result: ElementType, a: Value) -> Value:
    return source.number(result, 0)


def _is_finite(source: Source, result: ElementType, a: Value) -> Value:
    # An infinity less itself is NaN.
    return source.write(PRED, "{0} - {0} == ZERO", a)


def _chosen(source: Source, result: ElementType, condition: Value, a: Value, b: Value) -> Value:
    return source.choose(condition, a, b)


def _power(source: Source, result: ElementType, base: Value, exponent: Value) -> Value:
    # An exponent that the compiler knows may be a root.
    is_known = exponent.number is not None and result != F64
    return _written_and_fitted("power({0}, {1})" if is_known else "{0} ** {1}")(source, result, base, exponent)


def _compared(operator: str) -> Operation:
    def operation(source: Source, result: ElementType, a: Value, b: Value) -> Value:
        if a.element_type == PRED:
            a, b = (convert(source, S32, operand) for operand in (a, b))
        if a.element_type.is_integer:
            return integers.compared(source, operator, a, b)
        return source.write(PRED, f"{{0}} {operator} {{1}}", a, b)

    return operation


def _compared_totally(operator: str) -> Operation:
    """By bits, so that -NaN < -infinity < … < -0 < 0 < … < infinity < NaN."""

    def operation(source: Source, result: ElementType, a: Value, b: Value) -> Value:
        pattern = a.element_type.carrier.signed
        last, highest = source.number(pattern, pattern.bits - 1), source.number(pattern, pattern.highest)
        bits = [source.write(pattern, "bits({0})", operand) for operand in (a, b)]
        # Of negative numbers, the one of greater size is the lesser.
        keys = [source.write(pattern, "{0} ^ (({0} >> {1}) & {2})", operand, last, highest) for operand in bits]
        return source.write(PRED, f"{{0}} {operator} {{1}}", *keys)

    return operation


def _operations(
    meanings: Mapping[str, Meaning],
    element_types: Sequence[ElementType],
    written: Callable[[str], Operation] = _written_and_fitted,
) -> Iterator[tuple[tuple[str | ElementType, ...], Operation]]:
    """Yields the operations whose operands and result all have one type, for each of the types."""
    for opcode, meaning in meanings.items():
        if isinstance(meaning, str):
            operation, num_operands = written(meaning), len(set(re.findall(r"{\d}", meaning)))
        else:
            parameters = signature(meaning).parameters.values()
            operation, num_operands = meaning, sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters) - 2
        for element_type in element_types:
            yield (opcode, *[element_type] * (num_operands + 1)), operation


_OF_FLOATS: dict[str, Meaning] = {
    "imag": _no_imaginary_part,
    "power": _power,
    "real": _same,
    "reduce-precision": reduce_precision,
}
_OF_INTEGERS: dict[str, Meaning] = {
    "clamp": integers.clamp,
    "count-leading-zeros": integers.count_leading_zeros,
    "divide": integers.divide,
    "maximum": integers.maximum,
    "minimum": integers.minimum,
    "negate": integers.negated,
    "not": integers.inverted,
    "popcnt": integers.population_count,
    "power": integers.power,
    "remainder": integers.remainder,
    "shift-left": integers.shift_left,
    "shift-right-arithmetic": integers.shift_right_arithmetic,
    "shift-right-logical": integers.shift_right_logical,
}
_TYPES = tuple(ELEMENT_TYPES.values())

OPERATIONS: dict[tuple[str | ElementType, ...], Operation] = {
    **dict(_operations(_EXACT, FLOATS, _written)),
    **dict(_operations(_ROUNDED | _OF_FLOATS, FLOATS)),
    **dict(_operations(_WRAPPED | _OF_INTEGERS, INTEGERS)),
    **dict(_operations({"abs": integers.absolute, "sign": integers.sign}, SIGNED)),
    **dict(_operations(_LOGICAL, [PRED], _written)),
    **dict(_operations(dict.fromkeys(IDENTITIES, _same), _TYPES)),
    **{("select", PRED, chosen, chosen, chosen): _chosen for chosen in _TYPES},
    **{("is-finite", element_type, PRED): _is_finite for element_type in FLOATS},
    **{("convert", given, wanted): convert for given in _TYPES for wanted in _TYPES},
    **{
        (opcode, given, wanted): bitcast_convert
        for opcode in ("bitcast", "bitcast-convert")
        for given in _TYPES
        for wanted in _TYPES
        if given.bits == wanted.bits
    },
    **{
        (f"compare {direction}", compared, compared, PRED): _compared(operator)
        for direction, operator in _DIRECTIONS.items()
        for compared in _TYPES
    },
    **{
        (f"compare {direction} in total order", compared, compared, PRED): _compared_totally(operator)
        for direction, operator in _DIRECTIONS.items()
        for compared in FLOATS
    },
}
"""(opcode, element types of its operands, element type of its result) → operation."""

OPCODES = INLINED | {"constant", "get-tuple-element", "tuple"} | {str(name).split()[0] for name, *_ in OPERATIONS}
