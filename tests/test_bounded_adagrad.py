"""Bounded Adagrad: without bounds it is Adagrad, and what a bound holds back."""

from __future__ import annotations

import numpy as np
import pytest
from engines import assert_same_bits, small_engine, state
from side_by_side import EXTREMES, assert_close, train

from anycore import EmbeddingEngine
from anycore.optimizers import Adagrad, BoundedAdagrad, Optimizer


def trained(optimizer: Optimizer) -> EmbeddingEngine:
    """A small engine after five steps."""
    engine, rng = small_engine(optimizer), np.random.default_rng(0)
    for _ in range(5):
        engine.enqueue([rng.integers(0, 4, 2)])
        engine.receive_activations()
        engine.send_gradients([rng.normal(0, 1, (2, 2))])
    return engine


def test_without_bounds_it_is_adagrad() -> None:
    bounded = BoundedAdagrad(learning_rate=0.25, update_accumulator_first=True)
    assert_same_bits(state(trained(Adagrad(learning_rate=0.25))), state(trained(bounded)))


@pytest.mark.parametrize("kind", EXTREMES)
@pytest.mark.parametrize("bound", [0.0, 0.75])
def test_extreme_gradients(kind: str, bound: float) -> None:
    rng = np.random.default_rng(0)
    variables = {name: rng.uniform(0.5, 1, (9, 5)).astype(np.float32) for name in ("parameters", "accumulators")}
    gradients = rng.integers(1, 9, (2, 8, 5)) / 8 * EXTREMES[kind]
    bounds = {"max_var_update": bound, "max_accumulator": bound}
    assert_close(*train({"bounded_adagrad": bounds}, variables, gradients, [[0.25], [0.0]]))


@pytest.mark.parametrize("update_accumulator_first", [False, True])
def test_bounds_hold(update_accumulator_first: bool) -> None:
    engine = trained(
        BoundedAdagrad(
            learning_rate=0.25,
            update_accumulator_first=update_accumulator_first,
            max_var_update=0.125,
            max_accumulator=0.5,
        )
    )
    moved = np.abs(engine.retrieve("t")["parameters"] - np.arange(8).reshape(4, 2))
    assert 0.125 <= moved.max() <= 5 * 0.125
    assert engine.retrieve("t")["accumulators"].max() == 0.5
