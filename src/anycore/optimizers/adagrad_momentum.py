"""Adagrad with momentum, a decaying accumulator and any root."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anycore.optimizers.declarations import Interval, Slot, compiled
from anycore.optimizers.optimizer import Optimizer
from anycore.optimizers.vocabulary import ONE, power, where


def adagrad_momentum(
    w: Any,
    g: Any,
    lr: Any,
    accumulators: Any,
    momenta: Any,
    momentum: Any,
    use_nesterov: Any,
    exponent: Any,
    beta2: Any,
    epsilon: Any,
) -> Any:
    """Returns (w - lr·u, a', m').

    a' = a + g² if beta2 is 1, else beta2·a + (1 - beta2)·g²; s = g·(a' + epsilon)^(-1/exponent);
    m' = momentum·m + s; u = momentum·m' + s with Nesterov, else m'.

    Source: `AdagradMomentumParameters`, optimization_parameters.proto. Its text multiplies by g only in the last step;
    TensorFlow's SparseCore kernel and its correctness test scale g first, as here.
    """
    accumulators = where(beta2 == ONE, accumulators + g * g, beta2 * accumulators + (ONE - beta2) * g * g)
    scaled = g * power(accumulators + epsilon, -ONE / exponent)
    momenta = momentum * momenta + scaled
    step = where(use_nesterov, momentum * momenta + scaled, momenta)
    return w - lr * step, accumulators, momenta


@dataclass(frozen=True, kw_only=True)
class AdagradMomentum(Optimizer):
    """Adagrad whose scaled gradient is averaged by a momentum."""

    momentum: float = 0.9
    use_nesterov: bool = False
    exponent: float = compiled(2.0)
    beta2: float = 1.0
    epsilon: float = 1e-10

    rule = staticmethod(adagrad_momentum)
    slots = (Slot("accumulators"), Slot("momenta"))
    intervals = {"exponent": Interval(0, open_low=True), "epsilon": Interval(0)}
    wire_name = "adagrad_momentum"
    op_name = "AdagradMomentum"
