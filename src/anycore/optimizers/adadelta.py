"""Adadelta (Zeiler: ADADELTA, an Adaptive Learning Rate Method, 2012)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anycore.optimizers.declarations import Interval, Slot
from anycore.optimizers.optimizer import Optimizer
from anycore.optimizers.vocabulary import ONE, sqrt


def adadelta(w: Any, g: Any, lr: Any, accumulators: Any, updates: Any, rho: Any, epsilon: Any) -> Any:
    """Returns (w - lr·u, a', rho·updates + (1 - rho)·u²).

    a' = rho·accumulators + (1 - rho)·g²; u = √(updates + epsilon)/√(a' + epsilon)·g.

    Source: `AdadeltaParameters`, optimization_parameters.proto; TensorFlow's `SparseApplyAdadelta`.
    """
    accumulators = rho * accumulators + (ONE - rho) * g * g
    update = sqrt(updates + epsilon) / sqrt(accumulators + epsilon) * g
    return w - lr * update, accumulators, rho * updates + (ONE - rho) * update * update


@dataclass(frozen=True, kw_only=True)
class Adadelta(Optimizer):
    """Steps as large as the latest ones were, in units of the parameter.

    No front end creates its slots; they start at what older runtimes padded rows with.
    """

    rho: float = 0.95
    epsilon: float = 1e-7

    rule = staticmethod(adadelta)
    slots = (Slot("accumulators"), Slot("updates"))
    intervals = {"rho": Interval(0, 1), "epsilon": Interval(0)}
    wire_name = "adadelta"
    op_name = "Adadelta"
