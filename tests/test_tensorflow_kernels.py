"""The engine against TensorFlow's own training kernels, on the same tables and gradients.

They follow the same formulas in another order of operations, and each rounds to float32: some ten roundings a step,
differences of powers in FTRL a digit worse. Values are near 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from anycore import EmbeddingConfig, EmbeddingEngine, FeatureConfig, TableConfig
from anycore.optimizers import (
    FTRL,
    Adadelta,
    Adagrad,
    Adam,
    CenteredRMSProp,
    DynamicInput,
    Momentum,
    Optimizer,
    ProximalAdagrad,
    RMSProp,
    StochasticGradientDescent,
)

TOLERANCE = 2e-6
ROWS, DIMENSION = 8, 5


class Kernel(NamedTuple):
    """`ResourceApply<name>` and its `ResourceSparse` twin: argument of each slot, and their other arguments."""

    name: str
    slots: dict[str, str]
    arguments: Callable[[Any, float], dict[str, Any]] = lambda optimizer, lr: {"lr": lr}
    gradient: str = "grad"
    is_sparse: bool = True

    def apply(self, optimizer: Optimizer, lr: float, variables: dict[str, Any], ids: Any, gradient: Any) -> None:
        """Updates the variables; a kernel that is not sparse gets a gradient of zero for all other rows."""
        handles = {argument: variables[slot].handle for slot, argument in self.slots.items()}
        arguments = {"var": variables["parameters"].handle, **handles, **self.arguments(optimizer, lr)}
        if self.is_sparse:
            arguments["indices"] = ids
        else:
            gradient, given = np.zeros((ROWS, DIMENSION), np.float32), gradient
            gradient[ids] = given
        operation = f"Resource{'Sparse' * self.is_sparse}Apply{self.name}"
        getattr(tf.raw_ops, operation)(**arguments, **{self.gradient: gradient})


def fields(*names: str) -> Callable[[Any, float], dict[str, Any]]:
    """The learning rate and hyper-parameters of these names."""
    return lambda optimizer, lr: {"lr": lr, **{name: getattr(optimizer, name) for name in names}}


# Beta powers of zero switch the bias correction off.
ADAM = {"beta1_power": 0.0, "beta2_power": 0.0}

KERNELS = {
    Adadelta: Kernel("Adadelta", {"accumulators": "accum", "updates": "accum_update"}, fields("rho", "epsilon")),
    Adagrad: Kernel("Adagrad", {"accumulators": "accum"}),
    Adam: Kernel(
        "Adam",
        {"momenta": "m", "velocities": "v"},
        lambda o, lr: {**fields("beta1", "beta2", "epsilon")(o, lr), **ADAM},
        is_sparse=False,
    ),
    CenteredRMSProp: Kernel(
        "CenteredRMSProp", {"ms": "ms", "mom": "mom", "mg": "mg"}, fields("rho", "momentum", "epsilon")
    ),
    # Beta does what a greater l2 does.
    FTRL: Kernel(
        "Ftrl",
        {"accumulators": "accum", "linears": "linear"},
        lambda o, lr: {
            **fields("l1", "lr_power", "multiply_linear_by_lr")(o, lr),
            "l2": o.l2 + (o.beta / (2 * lr) if o.beta else 0),
        },
    ),
    Momentum: Kernel("Momentum", {"momenta": "accum"}, fields("momentum", "use_nesterov")),
    ProximalAdagrad: Kernel("ProximalAdagrad", {"accumulators": "accum"}, fields("l1", "l2")),
    RMSProp: Kernel("RMSProp", {"ms": "ms", "mom": "mom"}, fields("rho", "momentum", "epsilon")),
    StochasticGradientDescent: Kernel(
        "GradientDescent", {}, lambda o, lr: {"alpha": lr}, gradient="delta", is_sparse=False
    ),
}

OPTIMIZERS = [
    Adadelta(rho=0.8, epsilon=1e-3),
    Adagrad(),
    Adam(beta1=0.8, beta2=0.9, epsilon=1e-3, use_non_lazy_adam=True),
    CenteredRMSProp(rho=0.8, momentum=0.9, epsilon=1e-3),
    FTRL(),
    FTRL(l1=0.1, l2=0.2, beta=0.5),
    FTRL(l1=0.1, l2=0.2, lr_power=-0.3),
    FTRL(l1=0.1, l2=0.2, multiply_linear_by_lr=True),
    Momentum(),
    Momentum(momentum=0.5, use_nesterov=True),
    ProximalAdagrad(),
    ProximalAdagrad(l2=0.2),
    ProximalAdagrad(l1=0.1, l2=0.2),
    RMSProp(rho=0.8, momentum=0.9, epsilon=1e-3),
    StochasticGradientDescent(),
]
each_optimizer = pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: o.wire_name)


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
        np.testing.assert_allclose(ours, theirs, 10 * TOLERANCE, TOLERANCE)


@each_optimizer
@pytest.mark.parametrize("scale", [0, 1e-41, 1e-22, 1e18])
def test_extreme_gradients(optimizer: Optimizer, scale: float) -> None:
    """Zero; denormal; with a square that is denormal; with a square near the largest number."""
    steps = train_both(optimizer, [0.25, 0.125], lambda rng: scale * rng.uniform(0.1, 1, (5, DIMENSION)))
    for ours, theirs in steps:
        np.testing.assert_allclose(ours, theirs, 10 * TOLERANCE, TOLERANCE)


# TensorFlow refuses it for the others.
TAKE_ZERO = [o for o in OPTIMIZERS if not isinstance(o, ProximalAdagrad) and getattr(o, "multiply_linear_by_lr", True)]


@pytest.mark.parametrize("optimizer", TAKE_ZERO, ids=lambda o: o.wire_name)
def test_a_rate_of_zero(optimizer: Optimizer) -> None:
    for ours, theirs in train_both(optimizer, [0.0, 0.25, 0.0], normal):
        np.testing.assert_allclose(ours, theirs, 10 * TOLERANCE, TOLERANCE)
