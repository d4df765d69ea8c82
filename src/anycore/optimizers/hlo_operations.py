"""XLA's element-wise operations as expressions in the words of `vocabulary`.

An s32 is carried as the float32 of the same value: it comes from constants, comparisons and conversions, and ends as an
f32, which is exact. Integer arithmetic, which wraps around, is left out, and so is what works on bits.

Source: operation semantics of XLA (openxla.org); opcode names of hlo.proto's `HloInstructionProto.opcode`.
"""

from __future__ import annotations

F32, S32, PRED, TUPLE = "F32", "S32", "PRED", "TUPLE"

IDENTITIES = {"bitcast", "broadcast", "copy", "opt-barrier", "parameter", "reshape", "transpose"}
"""Opcodes whose result is their operand, as there is one element."""

INLINED = {"call", "fusion", "map"}
"""Opcodes that run another computation once, on their operands."""

SAME = "{0}"
POWER_OF_A_NUMBER = "power({0}, {1})"
"""`power` where the exponent is known to the compiler."""

_UNARY = {
    "abs": "absolute({0})",
    "cbrt": "cbrt({0})",
    "ceil": "ceil({0})",
    "cosine": "cos({0})",
    "erf": "erf({0})",
    "exponential": "exp({0})",
    "exponential-minus-one": "expm1({0})",
    "floor": "floor({0})",
    "log": "log({0})",
    "log-plus-one": "log1p({0})",
    "logistic": "ONE / (ONE + exp(-{0}))",
    "negate": "-{0}",
    # Half away from zero differs from half to even only where that has rounded a half towards zero.
    "round-nearest-afz": "where(({0} - rint({0})) * TWO == sign({0}), rint({0}) + sign({0}), rint({0}))",
    "round-nearest-even": "rint({0})",
    "rsqrt": "ONE / sqrt({0})",
    "sign": "sign({0})",
    "sine": "sin({0})",
    "sqrt": "sqrt({0})",
    "tan": "sin({0}) / cos({0})",
    "tanh": "tanh({0})",
}

_BINARY = {
    "add": "{0} + {1}",
    "atan2": "arctan2({0}, {1})",
    "divide": "{0} / {1}",
    "multiply": "{0} * {1}",
    "power": "{0} ** {1}",
    "remainder": "fmod({0}, {1})",
    "subtract": "{0} - {1}",
}

_LOGICAL = {"and": "{0} & {1}", "or": "{0} | {1}", "xor": "{0} != {1}"}

_DIRECTIONS = {"EQ": "==", "NE": "!=", "GE": ">=", "GT": ">", "LE": "<=", "LT": "<"}

OPERATIONS: dict[tuple[str, ...], str] = {
    **{(opcode, F32, F32): expression for opcode, expression in _UNARY.items()},
    **{(opcode, F32, F32, F32): expression for opcode, expression in _BINARY.items()},
    **{(opcode, PRED, PRED, PRED): expression for opcode, expression in _LOGICAL.items()},
    **{
        (f"compare {direction}", operand, operand, PRED): f"{{0}} {operator} {{1}}"
        for direction, operator in _DIRECTIONS.items()
        for operand in (F32, S32, PRED)
    },
    **{("select", PRED, chosen, chosen, chosen): "where({0}, {1}, {2})" for chosen in (F32, S32, PRED)},
    **{("maximum", number, number, number): "maximum({0}, {1})" for number in (F32, S32)},
    **{("minimum", number, number, number): "minimum({0}, {1})" for number in (F32, S32)},
    **{("clamp", *[number] * 4): "minimum(maximum({1}, {0}), {2})" for number in (F32, S32)},
    # False == operand, without writing a literal.
    ("not", PRED, PRED): "({0} != {0}) == {0}",
    # An infinity less itself is NaN.
    ("is-finite", F32, PRED): "{0} - {0} == ZERO",
    **{(opcode, same, same): SAME for opcode in (*IDENTITIES, "convert") for same in (F32, S32, PRED)},
    **{("convert", PRED, number): "where({0}, ONE, ZERO)" for number in (F32, S32)},
    **{("convert", number, PRED): "{0} != ZERO" for number in (F32, S32)},
    ("convert", S32, F32): SAME,
    # Towards zero, within the limits {1} and {2} of an s32; NaN becomes 0.
    ("convert", F32, S32): (
        "where({0} == {0}, minimum(maximum(where({0} < ZERO, ceil({0}), floor({0})), {1}), {2}), ZERO)"
    ),
}
"""(opcode, element types of its operands, element type of its result) → expression of the operands {0}, {1}, …"""

OPCODES = INLINED | {"constant", "get-tuple-element", "tuple"} | {operation.split()[0] for operation, *_ in OPERATIONS}
