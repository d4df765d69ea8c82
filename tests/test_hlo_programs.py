"""The stored programs are what JAX makes of them, and compute what it computes."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from hlo_programs import KINDS, PROGRAMS, RATE, Program
from tolerance import STEP

from anycore.optimizers.hlo import translate

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
    for found, values in zip(results(program.stored(kind), *inputs(program)), expected, strict=True):
        STEP.assert_close(found, values)
