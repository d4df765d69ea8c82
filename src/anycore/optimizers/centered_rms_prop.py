"""RMSProp with the gradient's variance in place of its mean square (Graves: Generating Sequences, 2013)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anycore.optimizers.declarations import Interval, Slot
from anycore.optimizers.optimizer import Optimizer
from anycore.optimizers.vocabulary import ONE, sqrt


def centered_rms_prop(
    w: Any, g: Any, lr: Any, ms: Any, mom: Any, mg: Any, rho: Any, momentum: Any, epsilon: Any
) -> Any:
    """Returns (w - mom', ms', mom', mg').

    ms' = rho·ms + (1 - rho)·g²; mg' = rho·mg + (1 - rho)·g; mom' = momentum·mom + lr·g/√(ms' - mg'² + epsilon).

    Source: `CenteredRmsPropParameters`, optimization_parameters.proto; TensorFlow's `SparseApplyCenteredRMSProp`.
    """
    ms = rho * ms + (ONE - rho) * g * g
    mg = rho * mg + (ONE - rho) * g
    mom = momentum * mom + lr * g / sqrt(ms - mg * mg + epsilon)
    return w - mom, ms, mom, mg


@dataclass(frozen=True, kw_only=True)
class CenteredRMSProp(Optimizer):
    """A rate for every element, divided by the standard deviation of its gradient.

    No front end creates its slots; they start at what older runtimes padded rows with.
    """

    rho: float = 0.9
    momentum: float = 0.0
    epsilon: float = 1e-7

    rule = staticmethod(centered_rms_prop)
    slots = (Slot("ms", 1.0), Slot("mom"), Slot("mg"))
    intervals = {"rho": Interval(0, 1), "epsilon": Interval(0)}
    wire_name = "centered_rms_prop"
    op_name = "CenteredRMSProp"
