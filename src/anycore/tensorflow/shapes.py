"""From the shapes of inputs to the shapes of activations, and the rules that both obey.

All lists are parallel to the flattened features. An output shape is that of a feature's activations on one replica,
without the dimension of its table.

Source: `tf.tpu.experimental.embedding.TPUEmbedding`, TensorFlow 2.21, also for the words of the errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


def is_sequence(feature: Any) -> bool:
    """Returns whether `max_sequence_length` of a FeatureConfig counts: an output_shape of its own overrides it."""
    return feature.max_sequence_length > 0 and not feature.output_shape


def input_shape(path: str, feature: Any, tensor: Any) -> tf.TensorShape:
    """Returns the shape of one replica's input; a sequence feature's maximum length stands before the last axis.

    Raises: ValueError for a type, or a rank, that cannot be looked up.
    """
    for kind, shape_of in _INPUT_SHAPES.items():
        if isinstance(tensor, kind):
            if tensor.shape.rank is None:
                raise ValueError(
                    f"Input {path} has an unknown rank, so its shape cannot be determined: set its shape, for example "
                    "with tf.ensure_shape, before it is enqueued."
                )
            return tf.TensorShape(shape_of(path, feature, tensor.shape.as_list()))
    raise ValueError(
        f"Input {path} is of unknown type {type(tensor)}. Please only pass Tensor, SparseTensor or RaggedTensor as "
        "input to enqueue."
    )


def _dense(path: str, feature: Any, shape: list[int | None]) -> list[int | None]:
    if not shape:
        raise ValueError(f"Only rank 1 and above dense tensor is supported, find rank 0 dense tensor for input {path}")
    if len(shape) > 1 and shape[-1] != 1:
        raise ValueError(
            "Rank 2 or above dense tensor should have last dimension as 1 as the last dimension will always be "
            f"reduced. Instead got dense tensor as shape {shape} for input {path}"
        )
    return shape


def _sparse(path: str, feature: Any, shape: list[int | None]) -> list[int | None]:
    if len(shape) < 2:
        raise ValueError(
            f"Only rank 2 and above sparse tensor is supported, find rank {len(shape)} sparse tensor for input {path}"
        )
    return _with_sequence(feature, shape)


def _ragged(path: str, feature: Any, shape: list[int | None]) -> list[int | None]:
    if len(shape) != 2:
        raise ValueError(
            f"Only rank 2 ragged tensor is supported, find rank {len(shape)} ragged tensor for input {path}"
        )
    return _with_sequence(feature, shape)


def _with_sequence(feature: Any, shape: list[int | None]) -> list[int | None]:
    if is_sequence(feature) and len(shape) == 2:
        return [shape[0], feature.max_sequence_length, shape[1]]
    return shape


_INPUT_SHAPES: dict[Any, Callable[[str, Any, list[int | None]], list[int | None]]] = {
    tf.Tensor: _dense,
    tf.SparseTensor: _sparse,
    tf.RaggedTensor: _ragged,
}


def output_shapes(features: Sequence[Any], input_shapes: Sequence[tf.TensorShape]) -> list[tf.TensorShape]:
    """Returns what is left of the input shapes once their last axis is reduced.

    Raises: ValueError for a shape of unknown rank or rank 0.
    """
    shapes = []
    for feature, shape in zip(features, input_shapes, strict=True):
        if not shape.rank:
            raise ValueError(f"Received input tensor of shape {shape}. Rank must be 1 and above")
        if shape.rank == 2 and shape[-1] != 1:
            # A dense input ends in 1; this one is sparse or ragged, and given to `build` as it is.
            shape = tf.TensorShape(_with_sequence(feature, shape.as_list()))
        shapes.append(shape if shape.rank == 1 else shape[:-1])
    return shapes


def output_shapes_of_batch_size(features: Sequence[Any], batch_size: int) -> list[tf.TensorShape]:
    """Returns [batch_size], for sequence features [batch_size, max_sequence_length]."""
    return [
        tf.TensorShape([batch_size, feature.max_sequence_length] if is_sequence(feature) else [batch_size])
        for feature in features
    ]


def merged(
    paths: Sequence[str], known: Sequence[tf.TensorShape], incoming: Sequence[tf.TensorShape]
) -> list[tf.TensorShape]:
    """Returns the known output shapes, and the incoming ones where nothing is known yet.

    Raises: ValueError where they contradict each other.
    """
    check_consistent(paths, known, incoming)
    return [old if old else new for old, new in zip(known, incoming, strict=True)]


def check_consistent(paths: Sequence[str], known: Sequence[tf.TensorShape], incoming: Sequence[tf.TensorShape]) -> None:
    """Raises ValueError where an incoming output shape contradicts the known one.

    Inputs of rank 1 and 2 may be spread over a known shape of higher rank, as ragged tensors are; whether they fit is
    seen when they are enqueued.
    """
    for path, old, new in zip(paths, known, incoming, strict=True):
        if not old or not new or (new.rank in (1, 2) and old.rank > new.rank):
            continue
        if not old.is_compatible_with(new):
            raise ValueError(
                f"Inconsistent shape founded for input feature {path}, Output shape is set to be {old}, "
                f"But got incoming output shape {new}"
            )


def check_fully_defined(paths: Sequence[str], shapes: Sequence[tf.TensorShape]) -> None:
    """Raises ValueError that names the first feature whose output shape is not known."""
    for path, shape in zip(paths, shapes, strict=True):
        if not shape.is_fully_defined():
            raise ValueError(
                f"Input Feature {path} has output shape set as {shape} which is not fully defined. Please specify the "
                "fully defined shape in either FeatureConfig or for the build method."
            )
