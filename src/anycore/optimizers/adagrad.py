"""Adagrad (Duchi, Hazan, Singer: Adaptive Subgradient Methods, JMLR 2011)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anycore.optimizers.declarations import Slot
from anycore.optimizers.optimizer import Optimizer
from anycore.optimizers.vocabulary import sqrt


def adagrad(w: Any, g: Any, lr: Any, accumulators: Any) -> Any:
    """Returns (w - lr·g/√a', a') with a' = accumulators + g².

    Source: `AdagradParameters`, optimization_parameters.proto; TensorFlow's `SparseApplyAdagrad`. No epsilon.
    """
    accumulators = accumulators + g * g
    return w - lr * g / sqrt(accumulators), accumulators


@dataclass(frozen=True, kw_only=True)
class Adagrad(Optimizer):
    """A rate for every element, divided by the root of its summed squared gradients."""

    rule = staticmethod(adagrad)
    slots = (Slot("accumulators", 0.1),)
    wire_name = "adagrad"
    op_name = "Adagrad"
