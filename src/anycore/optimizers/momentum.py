"""Gradient descent with momentum (Sutskever et al.: On the importance of initialization and momentum, ICML 2013)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anycore.optimizers.declarations import Slot
from anycore.optimizers.optimizer import Optimizer
from anycore.optimizers.vocabulary import where


def momentum(w: Any, g: Any, lr: Any, momenta: Any, momentum: Any, use_nesterov: Any) -> Any:
    """Returns (w - lr·u, m') with m' = momentum·momenta + g; u = g + momentum·m' with Nesterov, else m'.

    Source: `MomentumParameters`, optimization_parameters.proto; TensorFlow's `SparseApplyMomentum`.
    """
    momenta = momentum * momenta + g
    return w - lr * where(use_nesterov, g + momentum * momenta, momenta), momenta


@dataclass(frozen=True, kw_only=True)
class Momentum(Optimizer):
    """Gradient descent along a decaying sum of gradients."""

    rule = staticmethod(momentum)  # before the field, which takes its name

    momentum: float = 0.9
    use_nesterov: bool = False

    slots = (Slot("momenta"),)
    wire_name = "momentum"
    op_name = "Momentum"
