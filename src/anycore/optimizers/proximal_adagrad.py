"""Adagrad with a proximal step for l1 and l2 (Duchi, Singer: Forward Backward Splitting, JMLR 2009)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anycore.optimizers.declarations import Interval, Slot
from anycore.optimizers.optimizer import Optimizer
from anycore.optimizers.vocabulary import ONE, maximum, minimum, sqrt


def proximal_adagrad(w: Any, g: Any, lr: Any, accumulators: Any, l1: Any, l2: Any) -> Any:
    """Returns ((p - clip(p, ±e·l1))/(1 + e·l2), a') with a' = accumulators + g², e = lr/√a', p = w - e·g.

    Source: `ProximalAdagradParameters`, optimization_parameters.proto; TensorFlow's `SparseApplyProximalAdagrad`.
    """
    accumulators = accumulators + g * g
    rate = lr / sqrt(accumulators)
    stepped = w - rate * g
    limit = rate * l1
    return (stepped - minimum(maximum(stepped, -limit), limit)) / (ONE + rate * l2), accumulators


@dataclass(frozen=True, kw_only=True)
class ProximalAdagrad(Optimizer):
    """Adagrad that pulls parameters towards zero, and with `l1` all the way.

    A constant learning rate below zero, whose limits would be upside down, is refused as TensorFlow's kernel does.
    """

    l1: float = 0.0
    l2: float = 0.0

    rule = staticmethod(proximal_adagrad)
    slots = (Slot("accumulators", 0.1),)
    intervals = {"l1": Interval(0), "l2": Interval(0)}
    constant_rates = Interval(0)
    wire_name = "proximal_adagrad"
    op_name = "ProximalAdagrad"
