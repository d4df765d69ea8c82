"""Our optimizers against TensorFlow's own training kernels, on the same tables and gradients.

They follow the same formulas in another order of operations, and each rounds to float32. Values are near 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
import torch
from tolerance import of_steps
from training_kernels import KERNELS, OPTIMIZERS, trained
from triton_outcomes import outcomes
from updates import Variables, assert_close, compiled_updated, random_steps, updated

from anycore import EmbeddingConfig, EmbeddingEngine, FeatureConfig, TableConfig
from anycore.optimizers import FTRL, DynamicInput, Optimizer, ProximalAdagrad

ROWS, DIMENSION = 8, 5
each_optimizer = pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: o.wire_name)


# Arrays


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Variables]:
    """What Triton's interpreter makes of the steps."""
    jobs = {str(k): random_steps(optimizer) for k, optimizer in enumerate(OPTIMIZERS)}
    return outcomes(jobs, True, tmp_path_factory.mktemp("triton"))


BACKENDS: dict[str, Callable[..., Variables]] = {
    "numpy": lambda steps: updated(steps, np.array),
    "numba": compiled_updated,
    "jax": lambda steps: updated(steps, jnp.array),
    "torch": lambda steps: updated(steps, torch.tensor),
}


@each_optimizer
@pytest.mark.parametrize("backend", [*BACKENDS, "triton"])
def test_ten_random_steps_of_arrays(optimizer: Optimizer, backend: str, interpreted: dict[str, Variables]) -> None:
    steps = random_steps(optimizer)
    found = interpreted[str(OPTIMIZERS.index(optimizer))] if backend == "triton" else BACKENDS[backend](steps)
    assert_close(found, trained(steps), of_steps(optimizer))


# Tables


def initial(optimizer: Optimizer, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """State variables between 0.1 and 1, and a mean square above the square of any mean."""
    found = {name: rng.uniform(0.1, 1, (ROWS, DIMENSION)) for name in optimizer.state_variables}
    if "mg" in found:
        found["ms"] += 1
    return {name: values.astype(np.float32) for name, values in found.items()}


def train_both(
    optimizer: Optimizer, rates: list[float], draw: Callable[[np.random.Generator], np.ndarray]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """State variables, ours and TensorFlow's, after a step for each rate with five distinct ids."""
    rng = np.random.default_rng(3)
    optimizer = replace(optimizer, learning_rate=DynamicInput(0))
    table = TableConfig("table", ROWS, DIMENSION, optimizer)
    engine = EmbeddingEngine(EmbeddingConfig([table], [FeatureConfig("feature", "table", [5])]))
    start = initial(optimizer, rng)
    engine.load("table", start)
    variables = {name: tf.Variable(values) for name, values in start.items()}
    for rate in rates:
        ids, gradient = rng.permutation(ROWS)[:5], draw(rng).astype(np.float32)
        engine.enqueue([ids])
        engine.receive_activations()
        engine.send_gradients([gradient], [rate])
        KERNELS[type(optimizer)].apply(optimizer, rate, variables, ids, gradient)
    ours = engine.retrieve("table")
    return [(ours[name], variables[name].numpy()) for name in start]


def normal(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(0, 1, (5, DIMENSION))


@each_optimizer
def test_ten_random_steps(optimizer: Optimizer) -> None:
    rates = np.random.default_rng(4).uniform(0.05, 0.5, 10).tolist()
    for ours, theirs in train_both(optimizer, rates, normal):
        of_steps(optimizer).assert_close(ours, theirs)


@each_optimizer
@pytest.mark.parametrize("scale", [0, 1e-41, 1e-22, 1e18])
def test_extreme_gradients(optimizer: Optimizer, scale: float) -> None:
    """Zero; denormal; with a square that is denormal; with a square near the largest number."""
    steps = train_both(optimizer, [0.25, 0.125], lambda rng: scale * rng.uniform(0.1, 1, (5, DIMENSION)))
    for ours, theirs in steps:
        of_steps(optimizer).assert_close(ours, theirs)


# TensorFlow refuses it for the others, and beta would be divided by it.
TAKE_ZERO = [o for o in OPTIMIZERS if not isinstance(o, FTRL | ProximalAdagrad)]
TAKE_ZERO += [FTRL(l1=0.1, l2=0.2, multiply_linear_by_lr=True)]


@pytest.mark.parametrize("optimizer", TAKE_ZERO, ids=lambda o: o.wire_name)
def test_a_rate_of_zero(optimizer: Optimizer) -> None:
    for ours, theirs in train_both(optimizer, [0.0, 0.25, 0.0], normal):
        of_steps(optimizer).assert_close(ours, theirs)
