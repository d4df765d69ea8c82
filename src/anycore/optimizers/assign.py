"""Gradients that are the new values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anycore.optimizers.optimizer import Optimizer


def assign(w: Any, g: Any, lr: Any) -> Any:
    """Returns (g,).

    Source: `AssignParameters`, optimization_parameters.proto.
    """
    return (g,)


@dataclass(frozen=True, kw_only=True)
class Assign(Optimizer):
    """The gradient becomes the parameter: the sum of the row's gradients, or without accumulation its last one."""

    rule = staticmethod(assign)
    wire_name = "assign"
