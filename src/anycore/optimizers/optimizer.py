"""An optimizer: what it declares, and the update of a framework's own arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anycore.optimizers.backends import update
from anycore.optimizers.declared import DeclaredOptimizer


@dataclass(frozen=True, kw_only=True)
class Optimizer(DeclaredOptimizer):
    """A rule, its slots and its parameters, declared as `DeclaredOptimizer` says, and the update that they make."""

    def update(
        self, w: Any, g: Any, lr: Any, slots: Sequence[Any] | Mapping[str, Any] = (), **dynamic_inputs: Any
    ) -> tuple[Any, Any]:
        """Returns the new `w` and `slots` of one step, computed where the arrays lie; the arguments stay as they are.

        `w` and its gradient `g` are [rows, D] float32, all NumPy arrays, all JAX arrays (also inside `jax.jit`) or all
        torch tensors. `slots` holds the state variables after `parameters`, [rows, D] or, one number a row, [rows, 1]:
        a list, a tuple or a dict by name, and so they come back. `lr` is this step's learning rate in place of
        `learning_rate`, and `dynamic_inputs` gives every hyper-parameter that is a DynamicInput its number, by name:
        Python's or the library's. Gradient clipping, weight decay, rule and weight clipping follow one another as in
        an engine; torch records no gradients of them.

        Raises: InputError when an array, a number or a name is none of these; ConfigError when there is no rule.
        """
        return update(self, w, g, lr, slots, dynamic_inputs)
