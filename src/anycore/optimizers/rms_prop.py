"""RMSProp (Tieleman, Hinton: Lecture 6.5, Neural Networks for Machine Learning, 2012) with momentum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anycore.optimizers.declarations import Interval, Slot
from anycore.optimizers.optimizer import Optimizer
from anycore.optimizers.vocabulary import ONE, sqrt


def rms_prop(w: Any, g: Any, lr: Any, ms: Any, mom: Any, rho: Any, momentum: Any, epsilon: Any) -> Any:
    """Returns (w - mom', ms', mom') with ms' = rho·ms + (1 - rho)·g², mom' = momentum·mom + lr·g/√(ms' + epsilon).

    Source: `RmsPropParameters`, optimization_parameters.proto; TensorFlow's `SparseApplyRMSProp`.
    """
    ms = rho * ms + (ONE - rho) * g * g
    mom = momentum * mom + lr * g / sqrt(ms + epsilon)
    return w - mom, ms, mom


@dataclass(frozen=True, kw_only=True)
class RMSProp(Optimizer):
    """A rate for every element, divided by the root of its averaged squared gradient."""

    rho: float = 0.9
    momentum: float = 0.0
    epsilon: float = 1e-7

    rule = staticmethod(rms_prop)
    slots = (Slot("ms"), Slot("mom"))
    intervals = {"rho": Interval(0, 1), "epsilon": Interval(0)}
    wire_name = "rms_prop"
    op_name = "RMSProp"
