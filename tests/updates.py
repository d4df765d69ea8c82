"""Steps that every backend takes alike: forms of all optimizers, inputs, and what float64 makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import reference_optimizers
from golden import Golden
from hlo_programs import KINDS, PROGRAMS
from steps import numba_step
from tolerance import Tolerance

from anycore.optimizers import OPTIMIZERS, DynamicInput, Optimizer, UserDefinedProgram
from anycore.optimizers.compose import settings_of
from anycore.optimizers.row_wise_adagrad import RowWiseAdagrad

Variables = list[np.ndarray]

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
    optimizers: list[type[Optimizer]] = [*OPTIMIZERS.values(), RowWiseAdagrad]
    for optimizer in optimizers:
        if optimizer.rule is None:
            continue
        default = optimizer()
        yield default
        switched: dict[str, Any] = {
            name: True if value is False else 0.1
            for name, value in default.hyper_parameters().items()
            if value is False or value == 0.0
        }
        exponents: dict[str, Any] = {
            f.name: 1.5 * getattr(default, f.name) for f in fields(default) if f.metadata.get("compiled")
        }
        if switched:
            yield optimizer(**switched)
        if exponents:
            yield optimizer(**switched, **exponents)


FORMS = list(forms())

PROGRAM_FORMS = {
    f"{program.name} {kind}": UserDefinedProgram(program=program.stored(kind))
    for program in PROGRAMS
    if program.rate_shape is not None
    for kind in KINDS
}
"""Optimizers that the configuration carries."""


def row_wise_adagrad(h: Any, w: np.ndarray, g: np.ndarray, lr: float, accumulators: np.ndarray) -> Any:
    accumulators = accumulators + np.mean(g * g, axis=1, keepdims=True)
    return w - lr * g / (np.sqrt(accumulators) + h.epsilon), accumulators


RULES = {"row_wise_adagrad": row_wise_adagrad} | {
    name: optimizer.rule for name, optimizer in reference_optimizers.OPTIMIZERS.items()
}


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


EXTREMES = {
    "zero": (0.0, 0.05),
    "denormal": (1e-41, 0.05),
    "tiny": (1e-25, 0.05),
    "huge": (1e30, 0.05),
    "largest": (3e38, 0.05),
    "no rate": (1.0, 0.0),
}
"""Sizes of gradients, and rates."""


def extreme_steps(optimizer: Optimizer, kind: str) -> Steps:
    """Returns two steps with gradients of that kind."""
    size, rate = EXTREMES[kind]
    steps = random_steps(optimizer, 2)
    # Twice the same: what is left of two that cancel says nothing.
    gradients = [np.sign(steps.gradients[0]) * np.float32(size)] * 2
    return replace(steps, gradients=gradients, rates=[rate, rate])


def updated(steps: Steps, array: Callable[[np.ndarray], Any]) -> Variables:
    """Returns the variables after the steps that `Optimizer.update` takes with `array`s of a library."""
    w, *slots = map(array, steps.variables)
    for step, (gradient, rate) in enumerate(zip(steps.gradients, steps.rates, strict=True)):
        w, slots = steps.optimizer.update(w, array(gradient), rate, slots, **steps.dynamic_inputs(step))
    return [np.asarray(variable) for variable in (w, *slots)]


def compiled_updated(steps: Steps) -> Variables:
    """Returns the variables after the steps of the engine's compiled code, row by row."""
    variables = steps.variables
    for step, (gradient, rate) in enumerate(zip(steps.gradients, steps.rates, strict=True)):
        optimizer, inputs = replace(steps.optimizer, learning_rate=rate), [step + 1.0] * TAGS
        rows = [numba_step(optimizer, *row, dynamic_inputs=inputs) for row in zip(gradient, *variables, strict=True)]
        variables = [np.stack(column) for column in zip(*rows, strict=True)]
    return variables


def in_float64(steps: Steps) -> Variables:
    """Returns the variables after the steps, by the plain rules."""
    variables = [variable.astype(np.float64) for variable in steps.variables]
    for step, (gradient, rate) in enumerate(zip(steps.gradients, steps.rates, strict=True)):
        values = {**steps.optimizer.hyper_parameters(), **steps.dynamic_inputs(step)}
        rounded = {
            name: value if isinstance(value, bool) else float(np.float32(value)) for name, value in values.items()
        }
        w, *slots = variables
        rule, h = RULES[steps.optimizer.wire_name], SimpleNamespace(**rounded)
        variables = list(rule(h, w, gradient.astype(np.float64), float(np.float32(rate)), *slots))
    return variables


def assert_close(ours: Variables, theirs: Variables, tolerance: Tolerance) -> None:
    """Float32 and close, NaN and infinite at the same places."""
    for found, expected in zip(ours, theirs, strict=True):
        assert found.dtype == np.float32
        tolerance.assert_close(found, expected)
