"""How often ids occur (Yi et al.: Sampling-Bias-Corrected Neural Modeling, RecSys 2019)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from anycore.optimizers.declarations import DynamicInput, Interval, Slot
from anycore.optimizers.optimizer import Optimizer
from anycore.optimizers.vocabulary import ONE, minimum, where


def frequency_estimator(
    w: Any, g: Any, lr: Any, last_hit_step: Any, tau: Any, max_delta: Any, outlier_threshold: Any
) -> Any:
    """Returns (w', lr), where w estimates the steps between two uses of an id and lr is the number of this step.

    d = lr - last_hit_step, c = min(d, max_delta); w' = c if d ≥ outlier_threshold·w, else (1 - tau)·w + tau·c. The
    gradient has no effect.

    Source: `FrequencyEstimatorParameters`, optimization_parameters.proto.
    """
    delta = lr - last_hit_step
    capped = minimum(delta, max_delta)
    outlier = delta >= outlier_threshold * w
    # The step is one number; `where` makes it one of each element, as a slot is.
    return where(outlier, capped, (ONE - tau) * w + tau * capped), where(outlier, lr, lr)


@dataclass(frozen=True, kw_only=True)
class FrequencyEstimator(Optimizer):
    """Estimates the distance of an id's uses, in steps, in a table of dimension 1; 1/distance is its frequency.

    The learning rate delivers the number of the step. Parameters should start at `max_delta`. `weight_exponent` belongs
    to what a model makes of the estimate, (w/max_delta)^weight_exponent, and changes neither table nor activations.
    """

    learning_rate: float | DynamicInput = field(default=DynamicInput(0))
    tau: float = 0.05
    max_delta: float = 1e4
    outlier_threshold: float = 10.0
    weight_exponent: float = 1.0

    rule = staticmethod(frequency_estimator)
    slots = (Slot("last_hit_step"),)
    intervals = {
        "tau": Interval(0, 1),
        "max_delta": Interval(0, open_low=True),
        "outlier_threshold": Interval(0),
    }
    wire_name = "frequency_estimator"
    op_name = "FrequencyEstimator"
    only_dimension = 1
