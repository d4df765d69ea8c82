"""Adam (Kingma, Ba: Adam, ICLR 2015) without bias correction, lazy or over every row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anycore.optimizers.declarations import Interval, Slot
from anycore.optimizers.optimizer import Optimizer
from anycore.optimizers.vocabulary import ONE, sqrt, where


def adam(
    w: Any,
    g: Any,
    lr: Any,
    momenta: Any,
    velocities: Any,
    beta1: Any,
    beta2: Any,
    epsilon: Any,
    use_sum_inside_sqrt: Any,
) -> Any:
    """Returns (w - lr·m'/d, m', v').

    m' = beta1·m + (1 - beta1)·g; v' = beta2·v + (1 - beta2)·g²; d = √(v' + epsilon²) with `use_sum_inside_sqrt`, else
    √v' + epsilon. Bias correction is the caller's: send lr·√(1 - beta2ᵗ)/(1 - beta1ᵗ) as a dynamic learning rate.

    Source: `AdamParameters`, optimization_parameters.proto; TensorFlow's `ApplyAdam` with beta powers of zero.
    """
    momenta = beta1 * momenta + (ONE - beta1) * g
    velocities = beta2 * velocities + (ONE - beta2) * g * g
    denominator = where(use_sum_inside_sqrt, sqrt(velocities + epsilon * epsilon), sqrt(velocities) + epsilon)
    return w - lr * momenta / denominator, momenta, velocities


@dataclass(frozen=True, kw_only=True)
class Adam(Optimizer):
    """Adam; `use_non_lazy_adam` updates rows without a gradient too."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-7
    use_sum_inside_sqrt: bool = False
    use_non_lazy_adam: bool = False

    rule = staticmethod(adam)
    slots = (Slot("momenta"), Slot("velocities"))
    intervals = {
        "beta1": Interval(0, 1, open_high=True),
        "beta2": Interval(0, 1, open_high=True),
        "epsilon": Interval(0),
    }
    wire_name = "adam"
    op_name = "ADAM"

    @property
    def updates_every_row(self) -> bool:
        """True in the non-lazy form."""
        return self.use_non_lazy_adam
