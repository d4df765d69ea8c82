"""The stored programs are what JAX makes of them, and compute what it computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from hlo_programs import KINDS, PROGRAMS, RATE, Program
from jax import lax

from anycore.optimizers.hlo import parse, translate

NUMBERS = np.random.default_rng(0).normal(0, 1, (4, 1000)).astype(np.float32)


def results(module: bytes, g: Any, w: Any, *slots: Any) -> Any:
    translated = translate(module)
    with np.errstate(all="ignore"):
        return translated.rule(w, g, np.float32(RATE), *slots, **translated.constants)


def inputs(program: Program) -> list[Any]:
    g, w, *slots = NUMBERS[: 2 + program.num_slots]
    return [g, w, *map(np.abs, slots)]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_lowered_anew_they_compute_the_same(program: Program) -> None:
    for kind, module in program.lower().items():
        for found, stored in zip(
            results(module, *inputs(program)), results(program.stored(kind), *inputs(program)), strict=True
        ):
            np.testing.assert_array_equal(found, stored)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_they_compute_what_jax_does(program: Program, kind: str) -> None:
    rate = [] if program.rate_shape is None else [np.float32(RATE)]
    expected = jax.jit(program.in_jax())(*inputs(program), *rate)
    # XLA rounds a product and a sum once, and its functions are not NumPy's.
    for found, values in zip(results(program.stored(kind), *inputs(program)), expected, strict=True):
        np.testing.assert_allclose(found, values, rtol=2e-6, atol=1e-6)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "abs": lambda g, w: lax.abs(g),
    "atan2": lax.atan2,
    "cbrt": lambda g, w: lax.cbrt(g),
    "ceil": lambda g, w: lax.ceil(g),
    "clamp": lambda g, w: lax.clamp(np.float32(-0.5), g, np.float32(0.25)),
    "convert": lambda g, w: lax.convert_element_type(lax.convert_element_type(9 * g, "int32"), "float32"),
    "cosine": lambda g, w: lax.cos(g),
    "erf": lambda g, w: lax.erf(g),
    "exponential": lambda g, w: lax.exp(g),
    "exponential-minus-one": lambda g, w: lax.expm1(g),
    "floor": lambda g, w: lax.floor(g),
    "is-finite": lambda g, w: lax.select(lax.is_finite(g / (w - w)), g, w),
    "log": lambda g, w: lax.log(lax.abs(g)),
    "log-plus-one": lambda g, w: lax.log1p(lax.abs(g)),
    "negate": lambda g, w: lax.neg(g),
    "opt-barrier": lambda g, w: lax.optimization_barrier((w, g))[1],
    "power": lambda g, w: lax.pow(lax.abs(g), w),
    "remainder": lax.rem,
    "round-nearest-afz": lambda g, w: lax.round(4 * g, lax.RoundingMethod.AWAY_FROM_ZERO) + w,
    "round-nearest-even": lambda g, w: lax.round(4 * g, lax.RoundingMethod.TO_NEAREST_EVEN) + w,
    "rsqrt": lambda g, w: lax.rsqrt(lax.abs(g)),
    "select": lambda g, w: lax.select((g > w) ^ ~(g < 0), g, w),
    "sign": lambda g, w: lax.sign(g),
    "sine": lambda g, w: lax.sin(g),
    "sqrt": lambda g, w: lax.sqrt(lax.abs(g)),
    "tan": lambda g, w: lax.tan(g),
    "tanh": lambda g, w: lax.tanh(g),
}


@pytest.mark.parametrize("opcode", OPERATIONS)
def test_operations_are_called_as_jax_calls_them(opcode: str) -> None:
    function = jax.jit(OPERATIONS[opcode], keep_unused=True)
    g, w = NUMBERS[:2]
    module = function.lower(g[:1, None], w[:1, None]).compiler_ir("hlo").as_serialized_hlo_module_proto()
    opcodes = {i.opcode for computation in parse(module).computations for i in computation.instructions}
    assert opcode in opcodes
    (found,) = results(module, g, w)
    np.testing.assert_allclose(found, function(g, w), rtol=5e-6, atol=1e-6)
