"""FTRL-proximal (McMahan et al.: Ad Click Prediction, KDD 2013)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from anycore.optimizers.declarations import Interval, Slot, compiled
from anycore.optimizers.optimizer import Optimizer
from anycore.optimizers.vocabulary import TWO, ZERO, maximum, minimum, power, where


def ftrl(
    w: Any,
    g: Any,
    lr: Any,
    accumulators: Any,
    linears: Any,
    l1: Any,
    l2: Any,
    lr_power: Any,
    beta: Any,
    multiply_linear_by_lr: Any,
) -> Any:
    """Returns ((clip(z', ±t) - z')/d, a', z') with a' = a + g², p = a^-lr_power, p' = a'^-lr_power.

    z' = z + g - (p' - p)·w/lr, t = l1, d = (p' + beta)/lr + 2·l2; or with `multiply_linear_by_lr`
    z' = z + lr·g - (p' - p)·w, t = lr·l1, d = p' + beta + 2·lr·l2, which is finite for a rate of zero. Where d is zero,
    nothing has been accumulated yet, every weight is as good, and w stays.

    Source: `FtrlParameters`, optimization_parameters.proto; TensorFlow's `SparseApplyFtrl`.
    """
    new_accumulators = accumulators + g * g
    root = power(new_accumulators, -lr_power)
    growth = root - power(accumulators, -lr_power)
    linears = where(multiply_linear_by_lr, linears + lr * g - growth * w, linears + g - growth / lr * w)
    limit = where(multiply_linear_by_lr, lr * l1, l1)
    denominator = where(multiply_linear_by_lr, root + beta + TWO * lr * l2, (root + beta) / lr + TWO * l2)
    optimum = (minimum(maximum(linears, -limit), limit) - linears) / denominator
    return where(denominator == ZERO, w, optimum), new_accumulators, linears


@dataclass(frozen=True, kw_only=True)
class FTRL(Optimizer):
    """Follow the regularized leader; the weight is a function of the slots alone.

    A constant learning rate below zero is refused as TensorFlow's kernel does.
    """

    l1: float = 0.0
    l2: float = 0.0
    lr_power: float = compiled(-0.5)
    beta: float = 0.0
    multiply_linear_by_lr: bool = False

    rule = staticmethod(ftrl)
    slots = (Slot("accumulators", 0.1), Slot("linears"))
    intervals = {
        "l1": Interval(0),
        "l2": Interval(0),
        "lr_power": Interval(-math.inf, 0),
        "beta": Interval(0),
    }
    constant_rates = Interval(0)
    wire_name = "ftrl"
    op_name = "FTRL"
