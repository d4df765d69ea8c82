"""Adagrad that takes larger steps for rows that are seldom updated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from anycore.optimizers.declarations import DynamicInput, Interval, Slot, compiled
from anycore.optimizers.optimizer import Optimizer
from anycore.optimizers.vocabulary import ONE, maximum, minimum, power, sign, sqrt


def frequency_aware_adagrad(
    w: Any,
    g: Any,
    lr: Any,
    accumulators: Any,
    counters: Any,
    l1_regularization_strength: Any,
    l2_regularization_strength: Any,
    max_lr_multiplier: Any,
    probability_exponent: Any,
    accumulator_decay: Any,
    initial_accumulator_value: Any,
    step_counter: Any,
) -> Any:
    """Returns (w - lr·(s·g/√a' + l1_regularization_strength·sign(w) + l2_regularization_strength·w), a', c').

    c' = counters + 1; a' = max(accumulator_decay·accumulators + g², initial_accumulator_value);
    s = min((step_counter/c')^probability_exponent, max_lr_multiplier).

    Inferred from the texts of the fields, which contradict each other: one divides the step counter by the accumulator,
    another multiplies by the gradient twice. Here rarity is the step counter over the row's own count.

    Source: `FrequencyAwareAdagradParameters`, optimization_parameters.proto.
    """
    counters = counters + ONE
    accumulators = maximum(accumulator_decay * accumulators + g * g, initial_accumulator_value)
    scale = minimum(power(step_counter / counters, probability_exponent), max_lr_multiplier)
    update = scale * g / sqrt(accumulators) + l1_regularization_strength * sign(w) + l2_regularization_strength * w
    return w - lr * update, accumulators, counters


@dataclass(frozen=True, kw_only=True)
class FrequencyAwareAdagrad(Optimizer):
    """Adagrad scaled by rarity; `step_counter` delivers the number of the step with every step's gradients.

    No front end creates its slots; accumulators start at `initial_accumulator_value`, their least value, and counters
    at 0.
    """

    l1_regularization_strength: float = 0.0
    l2_regularization_strength: float = 0.0
    max_lr_multiplier: float = 10.0
    probability_exponent: float = compiled(0.5)
    accumulator_decay: float = 1.0
    initial_accumulator_value: float = 0.1
    step_counter: DynamicInput = field(default=DynamicInput(0))

    rule = staticmethod(frequency_aware_adagrad)
    slots = (Slot("accumulators", 0.1), Slot("counters"))
    intervals = {
        "l1_regularization_strength": Interval(0),
        "l2_regularization_strength": Interval(0),
        "max_lr_multiplier": Interval(0, open_low=True),
        "accumulator_decay": Interval(0, 1),
        "initial_accumulator_value": Interval(0),
    }
    wire_name = "frequency_aware_adagrad"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "slots", (Slot("accumulators", self.initial_accumulator_value), Slot("counters")))

    def _problems(self) -> Iterator[tuple[str, Any, str]]:
        yield from super()._problems()
        step_counter: Any = self.step_counter
        if not isinstance(step_counter, DynamicInput):
            yield "step_counter", step_counter, "must be a DynamicInput"
        elif step_counter == self.learning_rate:
            yield "step_counter.tag", step_counter.tag, "must not be the tag of the learning rate"
