"""The host's work as a part of traced and compiled JAX functions.

A callback runs when its operands are there, and in no other order. So a lookup takes the layer's anchor, whose value
comes out of the update before, and an update takes what its lookup returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np
from jax.experimental import io_callback, sparse

from anycore.keras.host import Call
from anycore.keras.inputs import Tensors

SUPPORTS_JIT = True


def tensors(ids: Any, weights: Any) -> Tensors:
    """Returns the arrays that an array or BCOO of ids and its weights are made of."""
    values = weights.data if isinstance(weights, sparse.BCOO) else weights
    if isinstance(ids, sparse.BCOO):
        return Tensors("sparse", ids.shape, [ids.data, ids.indices, np.int32(ids.shape[0])], values)
    return Tensors("dense", ids.shape, [ids], values)


def look_up(call: Call, anchor: jax.Array, arrays: Sequence[Any]) -> list[jax.Array]:
    """Returns the number of updates before, and the activations."""
    results = [jax.ShapeDtypeStruct((), np.int32), *(jax.ShapeDtypeStruct(s, np.float32) for s in call.shapes)]
    operands = jax.lax.stop_gradient([anchor, *arrays])
    return io_callback(lambda _, *arrays: call.look_up(*map(np.asarray, arrays)), results, *operands)


def train(
    call: Call,
    anchor: jax.Array,
    updates: jax.Array,
    rates: jax.Array,
    arrays: Sequence[Any],
    activations: Sequence[jax.Array],
) -> list[jax.Array]:
    """Returns the activations, such that computing the gradient of `anchor` updates the tables."""

    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def hooked(anchor: Any, operands: Any, activations: Any) -> Any:
        del anchor, operands
        return activations

    def forward(anchor: Any, operands: Any, activations: Any) -> Any:
        return hooked(anchor, operands, activations), operands

    def backward(operands: Any, gradients: Any) -> Any:
        done = io_callback(
            lambda _, *arrays: call.update(*map(np.asarray, arrays)),
            jax.ShapeDtypeStruct((), np.float32),
            *operands,
            *gradients,
        )
        return done, None, None

    hooked.defvjp(forward, backward)
    return hooked(anchor, [updates, rates, *arrays], list(activations))


def eagerly() -> AbstractContextManager[Any]:
    """Returns a context in which values are computed at once, also while a function is traced."""
    return jax.ensure_compile_time_eval()


def wait() -> None:
    """Returns when all that a step has begun is done."""
    jax.effects_barrier()
