"""Yogi (Zaheer et al.: Adaptive Methods for Nonconvex Optimization, NeurIPS 2018) with a proximal step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anycore.optimizers.declarations import Interval, Slot
from anycore.optimizers.optimizer import Optimizer
from anycore.optimizers.vocabulary import ONE, maximum, minimum, sign, sqrt


def proximal_yogi(
    w: Any, g: Any, lr: Any, v: Any, m: Any, l1: Any, l2: Any, beta1: Any, beta2: Any, epsilon: Any
) -> Any:
    """Returns ((p - clip(p, ±e·l1))/(1 + e·l2), v', m') with e = lr/(√v' + epsilon), p = w - e·m'.

    v' = v + (1 - beta2)·sign(g² - v)·g²; m' = beta1·m + (1 - beta1)·g. Bias correction is the caller's, as for Adam.

    Inferred from the paper, the texts of the fields and the Yogi optimizer of TensorFlow Addons, whose hyper-parameters
    and defaults are the same; no kernel is published.

    Source: `ProximalYogiParameters`, optimization_parameters.proto.
    """
    m = beta1 * m + (ONE - beta1) * g
    v = v + (ONE - beta2) * sign(g * g - v) * g * g
    rate = lr / (sqrt(v) + epsilon)
    stepped = w - rate * m
    limit = rate * l1
    return (stepped - minimum(maximum(stepped, -limit), limit)) / (ONE + rate * l2), v, m


@dataclass(frozen=True, kw_only=True)
class ProximalYogi(Optimizer):
    """Adam whose second moment moves slowly both ways, and that pulls parameters towards zero.

    A constant learning rate below zero, whose limits would be upside down, is refused.
    """

    l1: float = 0.0
    l2: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-3

    rule = staticmethod(proximal_yogi)
    slots = (Slot("v", 1e-6), Slot("m"))
    intervals = {
        "l1": Interval(0),
        "l2": Interval(0),
        "beta1": Interval(0, 1, open_high=True),
        "beta2": Interval(0, 1, open_high=True),
        "epsilon": Interval(0),
    }
    constant_rates = Interval(0)
    wire_name = "proximal_yogi"
    op_name = "ProximalYogi"
