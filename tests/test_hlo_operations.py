"""What every operation of an XLA program computes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hlo_rules import BACKENDS, NUMBERS, Array, G, W
from hlo_text import program

from anycore.optimizers.hlo import translate
from anycore.optimizers.hlo_operations import OPERATIONS


def half_away(x: Array) -> Array:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


ONE_OPERAND: dict[str, Callable[[Array], Array]] = {
    "abs": np.abs,
    "cbrt": np.cbrt,
    "ceil": np.ceil,
    "cosine": np.cos,
    "erf": np.vectorize(math.erf, otypes=[float]),
    "exponential": np.exp,
    "exponential-minus-one": np.expm1,
    "floor": np.floor,
    "log": np.log,
    "log-plus-one": np.log1p,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "negate": np.negative,
    "round-nearest-afz": half_away,
    "round-nearest-even": np.rint,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sign": np.sign,
    "sine": np.sin,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
    **dict.fromkeys(["bitcast", "broadcast", "copy", "opt-barrier", "reshape", "transpose", "convert"], np.array),
}
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


def assert_close(found: Array, expected: Array) -> None:
    """A float32 function of each library is right to a few units in the last place."""
    with np.errstate(all="ignore"):
        expected = expected.astype(np.float32)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=5e-7, atol=1e-44)


def test_every_operation_is_tested() -> None:
    tested = {"and", "or", "xor", "not", "clamp", "compare", "is-finite", "parameter", "select"}
    opcodes = {name.split()[0] for name, *_ in OPERATIONS}
    assert opcodes == {*ONE_OPERAND, *TWO_OPERANDS, *tested}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("opcode", ONE_OPERAND)
def test_operations_of_one_operand(backend: str, opcode: str) -> None:
    translated = translate(program(f"result = f32[1,1] {opcode}(g)"))
    # Only where their argument is small are float32's sines those of float64.
    g = NUMBERS[np.abs(NUMBERS) < 100] if opcode in ("sine", "cosine", "tan") else NUMBERS
    with np.errstate(all="ignore"):
        assert_close(BACKENDS[backend](translated, g, g), ONE_OPERAND[opcode](g.astype(float)))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("opcode", TWO_OPERANDS)
def test_operations_of_two_operands(backend: str, opcode: str) -> None:
    translated = translate(program(f"result = f32[1,1] {opcode}(g, w)"))
    with np.errstate(all="ignore"):
        assert_close(BACKENDS[backend](translated), TWO_OPERANDS[opcode](G.astype(float), W.astype(float)))


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
        ("pred[1,1] and(a, yes)", lambda a, b: a),
        ("pred[1,1] xor(yes, a)", lambda a, b: ~a),
        ("pred[1,1] compare(a, b), direction=NE", lambda a, b: a ^ b),
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


def as_s32(x: Array) -> Array:
    return np.clip(np.trunc(np.nan_to_num(x.astype(float), posinf=2.0**31, neginf=-(2.0**31))), -(2**31), 2**31 - 1)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("a = s32[1,1] convert(g)", lambda: as_s32(G)),
        ("a = s32[1,1] maximum(i, j)", lambda: np.maximum(as_s32(G), as_s32(W))),
        ("a = s32[1,1] minimum(i, j)", lambda: np.minimum(as_s32(G), as_s32(W))),
        ("a = s32[1,1] clamp(minus, i, two)", lambda: np.clip(as_s32(G), -7, 2)),
        (
            "p = pred[1,1] compare(i, j), direction=LT\n a = s32[1,1] select(p, i, two)",
            lambda: np.where(as_s32(G) < as_s32(W), as_s32(G), 2),
        ),
        ("p = pred[1,1] convert(i)\n a = s32[1,1] convert(p)", lambda: as_s32(G) != 0),
    ],
)
def test_integers(backend: str, lines: str, expected: Callable[[], Array]) -> None:
    body = f"""
      two = s32[1,1] constant(2)
      minus = s32[1,1] constant(-7)
      i = s32[1,1] convert(g)
      j = s32[1,1] convert(w)
      {lines}
      result = f32[1,1] convert(a)"""
    found = BACKENDS[backend](translate(program(body)))
    np.testing.assert_array_equal(found, expected().astype(np.float32))
