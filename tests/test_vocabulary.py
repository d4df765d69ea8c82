from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numba import njit
from steps import assert_same_bits
from tolerance import FUNCTION
from typed_words import CASES, TYPED_WORDS, Case

from anycore.kernels.bind import NUMBA
from anycore.optimizers import vocabulary
from anycore.optimizers.backends import NUMPY
from anycore.optimizers.compose import rebind
from anycore.optimizers.source import define

CONSTANTS = {"ZERO": 0, "ONE": 1, "TWO": 2}
FUNCTIONS: dict[str, Any] = {
    "sqrt": np.sqrt,
    "absolute": np.absolute,
    "sign": np.sign,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "where": np.where,
    "ceil": np.ceil,
    "floor": np.floor,
    "fmod": np.fmod,
    "rint": np.rint,
}
# Words that each library computes in its own way, to a few units in the last place.
ROUNDED: dict[str, Any] = {
    **{name: getattr(np, name) for name in ["arctan2", "cbrt", "cos", "cosh", "exp", "expm1", "log", "log1p"]},
    **{
        name: getattr(np, name) for name in ["arccos", "arccosh", "arcsin", "arcsinh", "arctanh", "sin", "sinh", "tanh"]
    },
    "erf": np.vectorize(math.erf),
}
BACKENDS = {"numpy": NUMPY, "numba": NUMBA}

# No word may turn -0.0 into 0.0, drop a NaN, flush a denormal or overflow early.
SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.3, -2.5, 1e-45, -1e-45, 1e-38, 3.4e38, -3.4e38, np.inf, -np.inf, np.nan], np.float32
)
EXPONENTS = [0.5, -0.5, 1.0, 2.0, -1.0, 0.0, 0.3, -1 / 3]


def elementwise(word: Any, *arguments: Any) -> np.ndarray:
    """Returns float32 results of a compiled word, called for one element at a time."""
    results = [word(*scalars) for scalars in zip(*arguments, strict=True)]
    return np.array(results, np.float32)


def operands_of(function: Any) -> list[np.ndarray]:
    """Returns all combinations of special numbers, an array for each argument."""
    return [axis.ravel() for axis in np.meshgrid(*[SPECIAL] * getattr(function, "nin", 2))]


def in_numba(name: str, operands: list[Any]) -> np.ndarray:
    """Returns float32 results of a word in a compiled rule, called for one element at a time."""
    arguments = "abc"[: len(operands)]
    rule = define("rule", [*arguments], [f"return word({', '.join(arguments)})"], {"word": NUMBA[name]})
    return elementwise(njit(error_model="numpy")(rule), *operands)


def raised_by(exponent: float) -> Any:
    """Returns a rule that raises to a compiled-in exponent."""

    def rule(base: Any) -> Any:
        return power(base, EXPONENT)  # type: ignore[name-defined]  # noqa: F821

    return rebind(rule, {"EXPONENT": np.float32(exponent)})


def powers(backend: str, base: np.ndarray, exponent: float) -> Any:
    rule = rebind(raised_by(exponent), BACKENDS[backend])
    with np.errstate(all="ignore"):
        return rule(base) if backend == "numpy" else elementwise(njit(error_model="numpy")(rule), base)


def test_every_word_is_tested() -> None:
    assert sorted([*CONSTANTS, *FUNCTIONS, *ROUNDED, *TYPED_WORDS, "power"]) == sorted(vocabulary.__all__)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_backend_has_every_word_and_no_other(backend: str) -> None:
    assert sorted(BACKENDS[backend]) == sorted(vocabulary.__all__)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_are_float32(backend: str, name: str) -> None:
    constant = BACKENDS[backend][name]
    assert type(constant) is np.float32
    assert constant == CONSTANTS[name]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_words_mean_the_same_in_both_backends(name: str) -> None:
    operands: list[Any] = operands_of(FUNCTIONS[name])
    if name == "where":
        operands = [operands[0] < operands[1], *operands]
    if name in ("minimum", "maximum"):  # which of 0.0 and -0.0 is the greater is open
        operands = [operand[(operands[0] != 0) | (operands[1] != 0)] for operand in operands]
    with np.errstate(all="ignore"):
        expected = FUNCTIONS[name](*operands)
        assert_same_bits([NUMPY[name](*operands)], [expected])
        assert_same_bits([in_numba(name, operands)], [expected])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_typed_words(case: Case) -> None:
    found = NUMPY[case.word](*case.operands)
    assert found.dtype == case.expected.dtype
    np.testing.assert_array_equal(found, case.expected)
    arguments = "abc"[: len(case.operands)]
    rule = define("rule", [*arguments], [f"return word({', '.join(arguments)})"], {"word": NUMBA[case.word]})
    compiled = njit(error_model="numpy")(rule)
    results = [compiled(*scalars) for scalars in zip(*case.operands, strict=True)]
    if case.word != "quotient":  # whose operands Numba widens
        assert str(compiled.nopython_signatures[0].return_type) == case.expected.dtype.name
    np.testing.assert_array_equal(np.array(results, case.expected.dtype), case.expected)


@pytest.mark.parametrize("name", ROUNDED)
def test_rounded_words_are_close_to_float64(name: str) -> None:
    function = ROUNDED[name]
    random = np.random.default_rng(0).normal(0, 5, (2, 500)).astype(np.float32)
    special = operands_of(function) if name == "arctan2" else [SPECIAL]
    operands = [np.concatenate(pair) for pair in zip(special, random, strict=False)]
    with np.errstate(all="ignore"):
        expected = function(*(operand.astype(float) for operand in operands)).astype(np.float32)
        for found in (NUMPY[name](*operands), in_numba(name, operands)):
            assert found.dtype == np.float32
            FUNCTION.assert_close(found, expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("exponent", "root"),
    [(0.5, np.sqrt), (-0.5, lambda x: np.float32(1) / np.sqrt(x)), (1.0, np.array)],
)
def test_power_of_a_special_exponent_is_exact(backend: str, exponent: float, root: Any) -> None:
    """Zeros, infinities and the last bit tell a root from the general power."""
    base = np.concatenate([SPECIAL, np.random.default_rng(0).lognormal(0, 20, 1000).astype(np.float32)])
    with np.errstate(all="ignore"):
        expected = root(base)
        assert (np.signbit(np.float32(-0.0) ** np.float32(0.5)), np.signbit(np.sqrt(np.float32(-0.0)))) == (False, True)
    assert_same_bits([powers(backend, base, exponent)], [expected])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("exponent", EXPONENTS)
def test_power_of_any_exponent(backend: str, exponent: float) -> None:
    base = np.random.default_rng(1).lognormal(0, 3, 1000).astype(np.float32)
    found = powers(backend, base, exponent)
    assert found.dtype == np.float32
    FUNCTION.assert_close(found, base.astype(float) ** float(np.float32(exponent)))
