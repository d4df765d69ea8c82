"""Adagrad with a bounded accumulator and bounded updates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anycore.optimizers.declarations import Interval, Slot
from anycore.optimizers.optimizer import Optimizer
from anycore.optimizers.vocabulary import ZERO, maximum, minimum, sqrt, where


def bounded_adagrad(
    w: Any,
    g: Any,
    lr: Any,
    accumulators: Any,
    update_accumulator_first: Any,
    max_var_update: Any,
    max_accumulator: Any,
) -> Any:
    """Returns (w - clip(u, ±max_var_update), a') with a' = min(accumulators + g², max_accumulator), u = lr·g/√d.

    d = a' with `update_accumulator_first`, else accumulators. A bound of 0 is none.

    Inferred from the texts of the fields; no kernel or formula is published. The text of `max_var_update` says that it
    clips the gradient, its name that it bounds what is taken off the parameter, as here.

    Source: `BoundedAdagradParameters`, optimization_parameters.proto.
    """
    bounded = where(max_accumulator > ZERO, minimum(accumulators + g * g, max_accumulator), accumulators + g * g)
    update = lr * g / sqrt(where(update_accumulator_first, bounded, accumulators))
    clipped = minimum(maximum(update, -max_var_update), max_var_update)
    return w - where(max_var_update > ZERO, clipped, update), bounded


@dataclass(frozen=True, kw_only=True)
class BoundedAdagrad(Optimizer):
    """Adagrad whose accumulator stops growing and whose updates stay small.

    No front end creates its slot; it starts at what older runtimes padded rows with.
    """

    update_accumulator_first: bool = True
    max_var_update: float = 0.0
    max_accumulator: float = 0.0

    rule = staticmethod(bounded_adagrad)
    slots = (Slot("accumulators", 0.1),)
    intervals = {"max_var_update": Interval(0), "max_accumulator": Interval(0)}
    wire_name = "bounded_adagrad"
