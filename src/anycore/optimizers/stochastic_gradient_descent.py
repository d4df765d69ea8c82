"""Stochastic gradient descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anycore.optimizers.optimizer import Optimizer


def stochastic_gradient_descent(w: Any, g: Any, lr: Any) -> Any:
    """Returns (w - lr·g,).

    Source: `StochasticGradientDescentParameters`, optimization_parameters.proto; TensorFlow's `ApplyGradientDescent`.
    """
    return (w - lr * g,)


@dataclass(frozen=True, kw_only=True)
class StochasticGradientDescent(Optimizer):
    """Gradient descent without state."""

    rule = staticmethod(stochastic_gradient_descent)
    wire_name = "stochastic_gradient_descent"
    op_name = "StochasticGradientDescent"
