"""What operations of an XLA program compute, beside float64, or where JAX lowers nothing that has them.

What XLA computes is compared in test_hlo_lowered, for every element type.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable

import numpy as np
import pytest
from hlo_lowered import LOWERED
from hlo_rules import BACKENDS, NUMBERS, Array, G, W
from hlo_text import program
from tolerance import FUNCTION, FUNCTION_OF_A_LIBRARY

from anycore.optimizers.hlo import parse, translate
from anycore.optimizers.hlo_operations import OPCODES


def half_away(x: Array) -> Array:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


ONE_OPERAND: dict[str, Callable[[Array], Array]] = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "ceil": np.ceil,
    "cosh": np.cosh,
    "cosine": np.cos,
    "erf": np.vectorize(math.erf, otypes=[float]),
    "exponential": np.exp,
    "exponential-minus-one": np.expm1,
    "floor": np.floor,
    "imag": np.zeros_like,
    "log": np.log,
    "log-plus-one": np.log1p,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "negate": np.negative,
    "round-nearest-afz": half_away,
    "round-nearest-even": np.rint,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sign": np.sign,
    "sine": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
    **dict.fromkeys(["bitcast", "bitcast-convert", "broadcast", "convert", "copy"], np.array),
    **dict.fromkeys(["opt-barrier", "real", "reshape", "transpose"], np.array),
}
NOT_LOWERED = {"acos", "acosh", "asin", "asinh", "atanh", "cosh", "imag", "logistic", "real", "sinh"}
TWO_OPERANDS: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "atan2": np.arctan2,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "power": np.power,
    "remainder": np.fmod,
    "subtract": np.subtract,
}
DIRECTIONS: dict[str, Callable[[Array, Array], Array]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "GE": np.greater_equal,
    "GT": np.greater,
    "LE": np.less_equal,
    "LT": np.less,
}


def assert_close(found: Array, expected: Array, backend: str) -> None:
    with np.errstate(all="ignore"):
        expected = expected.astype(np.float32)
    assert found.dtype == np.float32
    (FUNCTION_OF_A_LIBRARY if backend in ("jax", "torch") else FUNCTION).assert_close(found, expected)


def test_every_operation_is_tested() -> None:
    lowered = {
        instruction.opcode
        for each in LOWERED.values()
        for computation in parse(each.optimizer.program).computations
        for instruction in computation.instructions
    }
    assert {*ONE_OPERAND, *TWO_OPERANDS, *lowered, "call", "fusion", "get-tuple-element", "map"} >= OPCODES


@pytest.mark.parametrize(
    ("opcode", "backend"),
    [(o, b) for o in ONE_OPERAND for b in BACKENDS if b in ("numpy", "numba") or o in NOT_LOWERED],
)
def test_operations_of_one_operand(opcode: str, backend: str) -> None:
    translated = translate(program(f"result = f32[1,1] {opcode}(g)"))
    # Only where their argument is small are float32's sines those of float64.
    g = NUMBERS[np.abs(NUMBERS) < 100] if opcode in ("sine", "cosine", "tan") else NUMBERS
    with np.errstate(all="ignore"):
        assert_close(BACKENDS[backend](translated, g, g), ONE_OPERAND[opcode](g.astype(float)), backend)


@pytest.mark.parametrize("backend", ["numpy", "numba"])
@pytest.mark.parametrize("opcode", TWO_OPERANDS)
def test_operations_of_two_operands(backend: str, opcode: str) -> None:
    translated = translate(program(f"result = f32[1,1] {opcode}(g, w)"))
    with np.errstate(all="ignore"):
        assert_close(BACKENDS[backend](translated), TWO_OPERANDS[opcode](G.astype(float), W.astype(float)), backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_compare_and_select(backend: str, direction: str) -> None:
    body = f"""
      chosen = pred[1,1] compare(g, w), direction={direction}, type=FLOAT
      result = f32[1,1] select(chosen, w, g)"""
    expected = np.where(DIRECTIONS[direction](G, W), W, G)
    np.testing.assert_array_equal(BACKENDS[backend](translate(program(body))), expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_clamp(backend: str) -> None:
    body = """
      low = f32[1,1] constant(-0.5)
      result = f32[1,1] clamp(low, g, w)"""
    expected = np.minimum(np.maximum(G, np.float32(-0.5)), W)
    np.testing.assert_array_equal(BACKENDS[backend](translate(program(body))), expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("pred[1,1] and(a, b)", lambda a, b: a & b),
        ("pred[1,1] or(a, b)", lambda a, b: a | b),
        ("pred[1,1] xor(a, b)", lambda a, b: a ^ b),
        ("pred[1,1] not(a)", lambda a, b: ~a),
        ("pred[1,1] add(a, b)", lambda a, b: a | b),
        ("pred[1,1] maximum(a, b)", lambda a, b: a | b),
        ("pred[1,1] minimum(a, b)", lambda a, b: a & b),
        ("pred[1,1] multiply(a, b)", lambda a, b: a & b),
        ("pred[1,1] and(a, yes)", lambda a, b: a),
        ("pred[1,1] xor(yes, a)", lambda a, b: ~a),
        ("pred[1,1] compare(a, b), direction=NE", lambda a, b: a ^ b),
        ("pred[1,1] compare(a, b), direction=LT", lambda a, b: ~a & b),
        ("pred[1,1] compare(a, b), direction=GE", lambda a, b: a | ~b),
        ("pred[1,1] select(a, b, yes)", lambda a, b: ~a | b),
        ("pred[1,1] is-finite(g)", lambda a, b: np.isfinite(G)),
        ("pred[1,1] convert(g)", lambda a, b: G != 0),
        ("s32[1,1] convert(b)", lambda a, b: b),
        ("pred[1,1] copy(yes)", lambda a, b: True),
    ],
)
def test_truth(backend: str, line: str, expected: Callable[[Array, Array], Array]) -> None:
    body = f"""
      yes = pred[] constant(true)
      zero = f32[1,1] constant(0)
      a = pred[1,1] compare(g, zero), direction=GT
      b = pred[1,1] compare(w, zero), direction=LT
      truth = {line}
      result = f32[1,1] convert(truth)"""
    found = BACKENDS[backend](translate(program(body)))
    np.testing.assert_array_equal(found, np.where(expected(G > 0, W < 0), np.float32(1), np.float32(0)) + 0 * found)


# From the lowest to the highest in total order.
ORDERED = np.array([-np.nan, -np.inf, -3e38, -1.0, -1e-30, -0.0, 0.0, 1e-30, 1.0, 3e38, np.inf, np.nan], np.float32)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_compare_in_total_order(backend: str, direction: str) -> None:
    body = f"""
      is_so = pred[1,1] compare(g, w), direction={direction}, type=TOTALORDER
      result = f32[1,1] convert(is_so)"""
    places = np.arange(len(ORDERED))
    g, w = (axis.ravel() for axis in np.meshgrid(places, places))
    found = BACKENDS[backend](translate(program(body)), ORDERED[g], ORDERED[w])
    np.testing.assert_array_equal(found, DIRECTIONS[direction](g, w))


def powers_of(element_type: str, base: int, exponent: int) -> int:
    """What XLA computes on CPUs: six bits of an exponent count."""
    size = 2 ** int(element_type[1:])
    if exponent < 0:
        return 1 if base == 1 else (-1) ** exponent if base == -1 else 0
    power = base ** (exponent % 64) % size
    return power - size if element_type[0] == "s" and power >= size // 2 else power


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("element_type", ["s8", "s32", "u16"])
def test_powers_of_integers(backend: str, element_type: str) -> None:
    body = f"""
      base = {element_type}[1,1] convert(g)
      exponent = {element_type}[1,1] convert(w)
      power = {element_type}[1,1] power(base, exponent)
      result = f32[1,1] convert(power)"""
    bases, exponents = [0, 1, 2, 3, 7, 10, 100], [0, 1, 2, 3, 5, 31, 63, 64, 70, 100]
    if element_type[0] == "s":
        bases, exponents = ([*numbers, -1, -2, -3, -100] for numbers in (bases, exponents))
    g, w = (axis.ravel() for axis in np.meshgrid(bases, exponents))
    expected = [powers_of(element_type, *pair) for pair in zip(g.tolist(), w.tolist(), strict=True)]
    found = BACKENDS[backend](translate(program(body)), *(x.astype(np.float32) for x in (g, w)))
    np.testing.assert_array_equal(found, np.array(expected, np.float32))


@pytest.mark.parametrize(("exponent", "lines"), [(3, 12), (-1, 8)])
def test_a_known_exponent_takes_no_more_steps_than_it_has_bits(exponent: int, lines: int) -> None:
    body = f"""
      exponent = s32[] constant({exponent})
      base = s32[1,1] convert(g)
      power = s32[1,1] power(base, exponent)
      result = f32[1,1] convert(power)"""
    translated = translate(program(body))
    g = NUMBERS[np.abs(NUMBERS) < 100]
    whole = np.trunc(g)
    expected = whole**3 if exponent == 3 else np.where(np.abs(whole) == 1, whole, 0)
    np.testing.assert_array_equal(BACKENDS["numpy"](translated, g, g), expected)
    assert inspect.getsource(translated.rule).count("\n") < lines + 12


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_bitcast_may_change_the_type(backend: str) -> None:
    body = """
      i = s32[1,1] bitcast(g)
      sign = s32[] constant(-2147483648)
      turned = s32[1,1] xor(i, sign)
      result = f32[1,1] bitcast(turned)"""
    np.testing.assert_array_equal(BACKENDS[backend](translate(program(body))), -G)
