"""One input of `enqueue` as the three tensors that the operation takes for it."""

from __future__ import annotations

import logging
from typing import Any

import tensorflow as tf

from anycore.tensorflow.shapes import is_sequence

_log = logging.getLogger("anycore")


def op_inputs(path: str, feature: Any, tensor: Any, weight: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns indices or row splits (int64), ids (int64) and weights (float32); what is not there is empty.

    Raises: ValueError for a weight of another kind than the input.
    Source: `TPUEmbedding.enqueue` and `EnqueueTPUEmbeddingArbitraryTensorBatch`, TensorFlow 2.21.
    """
    if isinstance(tensor, tf.SparseTensor):
        return _sparse(path, feature, tensor, weight)
    if isinstance(tensor, tf.RaggedTensor):
        return _ragged(path, feature, tensor, weight)
    if weight is not None:
        raise ValueError(
            f"Weight specified for dense input {path}, which is not allowed. Weight will always be 1 in this case."
        )
    return _no_index(), tf.cast(tf.reshape(tensor, [-1]), tf.int64), _no_weights()


def _sparse(path: str, feature: Any, tensor: tf.SparseTensor, weight: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    _check_weight(path, weight, tf.SparseTensor)
    if is_sequence(feature) and tensor.shape.rank == 2:
        tensor, weight = (
            None if part is None else _truncated(part, feature.max_sequence_length) for part in (tensor, weight)
        )
        # The position becomes an axis of the output, so another one has to be there to be reduced.
        indices = tf.pad(tensor.indices, [[0, 0], [0, 1]])
    else:
        if feature.max_sequence_length > 0 and tensor.shape.rank != 2:
            _log.warning(
                "Input tensor %s is rank %d which is above 2, the max_sequence_length setting will be ignored.",
                path,
                tensor.shape.rank,
            )
        indices = tensor.indices
    weights = _no_weights() if weight is None else tf.cast(weight.values, tf.float32)
    return indices, tf.cast(tensor.values, tf.int64), weights


def _truncated(tensor: tf.SparseTensor, length: int) -> tf.SparseTensor:
    if tensor.shape[1] is not None and tensor.shape[1] <= length:
        return tensor
    return tf.sparse.slice(tensor, [0, 0], tf.stack([tensor.dense_shape[0], tf.constant(length, tf.int64)]))


def _ragged(path: str, feature: Any, tensor: tf.RaggedTensor, weight: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    _check_weight(path, weight, tf.RaggedTensor)
    if is_sequence(feature) and feature.max_sequence_length == 1:
        # The operation truncates longer sequences; one of length 1 it could not tell from a row to be combined.
        tensor, weight = (None if part is None else part[:, :1] for part in (tensor, weight))
    weights = _no_weights() if weight is None else tf.cast(weight.values, tf.float32)
    return tf.cast(tensor.row_splits, tf.int64), tf.cast(tensor.values, tf.int64), weights


def _check_weight(path: str, weight: Any, kind: type) -> None:
    if weight is not None and not isinstance(weight, kind):
        raise ValueError(
            f"Weight for {path} is type {type(weight)} which does not match type input which is {kind.__name__}."
        )


def _no_index() -> tf.Tensor:
    return tf.zeros([0], tf.int64)


def _no_weights() -> tf.Tensor:
    return tf.zeros([0], tf.float32)
