"""Lion (Chen et al.: Symbolic Discovery of Optimization Algorithms, NeurIPS 2023), lazy or over every row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anycore.optimizers.declarations import Interval, Slot
from anycore.optimizers.optimizer import Optimizer
from anycore.optimizers.vocabulary import ONE, sign


def lion(w: Any, g: Any, lr: Any, momenta: Any, beta1: Any, beta2: Any) -> Any:
    """Returns (w - lr·sign(beta1·m + (1 - beta1)·g), beta2·m + (1 - beta2)·g) with m = momenta, sign(0) = 0.

    Source: `LionParameters`, optimization_parameters.proto.
    """
    direction = sign(beta1 * momenta + (ONE - beta1) * g)
    return w - lr * direction, beta2 * momenta + (ONE - beta2) * g


@dataclass(frozen=True, kw_only=True)
class Lion(Optimizer):
    """Steps of one size, in the direction of an averaged gradient; `use_non_lazy_lion` updates every row.

    No front end creates its slot; it starts at 0 like other momenta.
    """

    beta1: float = 0.9
    beta2: float = 0.99
    use_non_lazy_lion: bool = False

    rule = staticmethod(lion)
    slots = (Slot("momenta"),)
    intervals = {"beta1": Interval(0, 1), "beta2": Interval(0, 1)}
    wire_name = "lion"

    @property
    def updates_every_row(self) -> bool:
        """True in the non-lazy form."""
        return self.use_non_lazy_lion
