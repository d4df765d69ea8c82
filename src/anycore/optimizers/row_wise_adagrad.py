"""Adagrad with one accumulator a row: an extension beyond the proto, for tables that are large and narrow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anycore.optimizers.declarations import Interval, Slot
from anycore.optimizers.optimizer import Optimizer
from anycore.optimizers.vocabulary import sqrt


def row_wise_adagrad(w: Any, g: Any, lr: Any, accumulators: Any, mean_square: Any, epsilon: Any) -> Any:
    """Returns (w - lr·g/(√a' + epsilon), a') with a' = accumulators + the row's mean of g².

    Source: the exact row-wise Adagrad of FBGEMM's table-batched embeddings, as TorchRec's users know it.
    """
    accumulators = accumulators + mean_square
    return w - lr * g / (sqrt(accumulators) + epsilon), accumulators


@dataclass(frozen=True, kw_only=True)
class RowWiseAdagrad(Optimizer):
    """A rate for every row, divided by the root of its summed mean squared gradients."""

    epsilon: float = 1e-8

    rule = staticmethod(row_wise_adagrad)
    slots = (Slot("accumulators", per_row=True),)
    intervals = {"epsilon": Interval(0)}
    wire_name = "row_wise_adagrad"
