"""The host's work as a part of TensorFlow graphs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from anycore.errors import ConfigError, InputError
from anycore.keras.host import Call
from anycore.keras.inputs import Tensors

SUPPORTS_JIT = False
"""XLA compiles no graph with Python functions in it."""


def tensors(ids: Any, weights: Any) -> Tensors:
    """Returns the tensors that a tensor, RaggedTensor or SparseTensor of ids and its weights are made of."""
    shape, values = tuple(ids.shape), getattr(weights, "values", weights)
    if isinstance(ids, tf.RaggedTensor):
        if ids.ragged_rank != 1:
            raise InputError(f"ragged ids must be ragged in their second axis alone, got {ids.shape}")
        return Tensors("ragged", shape, [ids.values, ids.row_splits], values)
    if isinstance(ids, tf.SparseTensor):
        return Tensors("sparse", shape, [ids.values, ids.indices, ids.dense_shape[0]], values)
    return Tensors("dense", shape, [ids], values)


def look_up(call: Call, anchor: Any, arrays: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the number of updates before, and the activations."""
    del anchor  # TensorFlow keeps the program's order of what has effects
    updates, *activations = tf.numpy_function(call.look_up, arrays, [tf.int32] + [tf.float32] * len(call.forms))
    updates.set_shape(())
    for activation, shape in zip(activations, call.shapes, strict=True):
        activation.set_shape(shape)
    return [updates, *activations]


def train(
    call: Call,
    anchor: Any,
    updates: tf.Tensor,
    rates: tf.Tensor,
    arrays: Sequence[tf.Tensor],
    activations: Sequence[tf.Tensor],
) -> list[tf.Tensor]:
    """Returns the activations, such that computing the gradient of `anchor` updates the tables."""
    del updates
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    if replicas > 1:
        raise ConfigError(f"one update a step needs one replica, but the strategy has {replicas}")

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def hooked(anchor: tf.Tensor) -> Any:
        def gradient(*gradients: Any) -> tf.Tensor:
            operands = [rates, *arrays, *map(tf.convert_to_tensor, gradients)]
            return tf.ensure_shape(tf.numpy_function(call.update, operands, tf.float32), ())

        return [tf.identity(activation) for activation in activations], gradient

    return hooked(tf.convert_to_tensor(anchor))


def eagerly() -> AbstractContextManager[Any]:
    """Returns a context in which values are computed at once, also while a graph is built."""
    return tf.init_scope()


def wait() -> None:
    """Returns when all that a step has begun is done, as it is here."""
