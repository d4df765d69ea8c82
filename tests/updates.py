"""Steps that every backend takes alike: forms of all optimizers, inputs, and what float64 makes of them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import reference_optimizers
from golden import Golden

from anycore.arrays import address
from anycore.kernels.bind import compiled_step
from anycore.optimizers import OPTIMIZERS, DynamicInput, Optimizer
from anycore.optimizers.compose import settings_of
from anycore.optimizers.row_wise_adagrad import RowWiseAdagrad

Variables = list[np.ndarray]

RTOL, ATOL = 1e-5, 2e-6
"""A step rounds about ten times by 6e-8 of numbers near 1, libraries round functions and fuse operations in ways of
their own, and over ten steps, differences of like numbers among them, that adds up to some 1e-6."""

TAGS = 8
"""Dynamic inputs that a step delivers at most."""


@dataclass(frozen=True)
class Steps:
    """Steps of one table: parameters and slots, a gradient and a rate for each step."""

    optimizer: Optimizer
    variables: Variables
    gradients: list[np.ndarray]
    rates: list[float]

    def dynamic_inputs(self, step: int) -> dict[str, float]:
        """Returns what step number `step`, from 0, delivers to hyper-parameters: its number, from 1."""
        values = self.optimizer.hyper_parameters()
        return {name: step + 1.0 for name, value in values.items() if isinstance(value, DynamicInput)}

    def settings(self) -> list[np.ndarray]:
        """Returns the settings of each step."""
        return [
            settings_of(replace(self.optimizer, learning_rate=rate), [step + 1.0] * TAGS)
            for step, rate in enumerate(self.rates)
        ]


def forms() -> Iterator[Optimizer]:
    """Yields every optimizer that has a rule: as it is, with all that is off switched on, with other exponents."""
    for optimizer in (*OPTIMIZERS.values(), RowWiseAdagrad):
        if optimizer.rule is None:
            continue
        default = optimizer()
        yield default
        switched = {
            name: True if value is False else 0.1
            for name, value in default.hyper_parameters().items()
            if value is False or value == 0.0
        }
        exponents = {f.name: f.default * 1.5 for f in fields(default) if f.metadata.get("compiled")}
        if switched:
            yield optimizer(**switched)
        if exponents:
            yield optimizer(**switched, **exponents)


FORMS = list(forms())


def row_wise_adagrad(h: Any, w: np.ndarray, g: np.ndarray, lr: float, accumulators: np.ndarray) -> Any:
    accumulators = accumulators + np.mean(g * g, axis=1, keepdims=True)
    return w - lr * g / (np.sqrt(accumulators) + h.epsilon), accumulators


RULES = {"row_wise_adagrad": row_wise_adagrad} | {
    name: optimizer.rule for name, optimizer in reference_optimizers.OPTIMIZERS.items()
}


def form_name(optimizer: Optimizer) -> str:
    """Returns the optimizer's name and the hyper-parameters that are not at their defaults."""
    changed = {f.name: getattr(optimizer, f.name) for f in fields(optimizer) if getattr(optimizer, f.name) != f.default}
    return "-".join([optimizer.wire_name, *(f"{name}={value}" for name, value in changed.items())])


def random_steps(optimizer: Optimizer, num_steps: int = 10, rows: int = 5, dimension: int = 19) -> Steps:
    """Returns steps with random gradients near 1."""
    rng = np.random.default_rng(3)
    shapes = [(rows, 1 if slot.per_row else dimension) for slot in optimizer.slots]
    # In every pair of them, the square of one is below the other: that is a variance.
    slots = [rng.uniform(0.1, 0.3, shape) for shape in shapes]
    return Steps(
        optimizer,
        [array.astype(np.float32) for array in (rng.standard_normal((rows, dimension)), *slots)],
        [rng.standard_normal((rows, dimension)).astype(np.float32) for _ in range(num_steps)],
        [0.05 * (step + 1) for step in range(num_steps)],
    )


def golden_steps(case: Golden) -> Steps:
    """Returns the step of a golden case."""
    optimizer = OPTIMIZERS[case.optimizer](**case.hyper_parameters)
    variables = [values.astype(np.float32) for values in (case.parameters, *case.slots.values())]
    return Steps(optimizer, variables, [case.gradient.astype(np.float32)], [case.learning_rate])


EXTREMES = {"zero": 0.0, "denormal": 1e-41, "tiny": 1e-25, "huge": 1e30, "largest": 3e38}
"""Size of gradients."""


def extreme_steps(optimizer: Optimizer, size: float, rate: float) -> Steps:
    """Returns two steps with gradients of that size."""
    steps = random_steps(optimizer, 2)
    signs = [np.sign(gradient) * np.float32(size) for gradient in steps.gradients]
    return replace(steps, gradients=signs, rates=[rate, rate])


def updated(steps: Steps, array: Callable[[np.ndarray], Any]) -> Variables:
    """Returns the variables after the steps that `Optimizer.update` takes with `array`s of a library."""
    w, *slots = map(array, steps.variables)
    for step, (gradient, rate) in enumerate(zip(steps.gradients, steps.rates, strict=True)):
        w, slots = steps.optimizer.update(w, array(gradient), rate, slots, **steps.dynamic_inputs(step))
    return [np.asarray(variable) for variable in (w, *slots)]


def compiled_updated(steps: Steps) -> Variables:
    """Returns the variables after the steps of the engine's kernels, row by row."""
    step = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)(compiled_step(steps.optimizer))
    records = np.concatenate(steps.variables, axis=1)
    dimension = steps.gradients[0].shape[1]
    for gradient, settings in zip(steps.gradients, steps.settings(), strict=True):
        for record, g in zip(records, gradient, strict=True):
            step(address(record), address(g), dimension, address(settings))
    return np.split(records, np.cumsum([variable.shape[1] for variable in steps.variables])[:-1], axis=1)


def in_float64(steps: Steps) -> Variables:
    """Returns the variables after the steps, by the plain rules."""
    variables = [variable.astype(np.float64) for variable in steps.variables]
    for step, (gradient, rate) in enumerate(zip(steps.gradients, steps.rates, strict=True)):
        values = {**steps.optimizer.hyper_parameters(), **steps.dynamic_inputs(step)}
        rounded = {name: value if isinstance(value, bool) else float(np.float32(value)) for name, value in values.items()}
        w, *slots = variables
        rule, h = RULES[steps.optimizer.wire_name], SimpleNamespace(**rounded)
        variables = list(rule(h, w, gradient.astype(np.float64), float(np.float32(rate)), *slots))
    return variables


def assert_close(ours: Variables, theirs: Variables, atol: float = ATOL) -> None:
    """Float32 and close, NaN and infinite at the same places."""
    for found, expected in zip(ours, theirs, strict=True):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, RTOL, atol)
