"""The order of operations in a tf.function."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import pytest
import tensorflow as tf
from tensorflow_scenarios import BY_FEATURE, floats, integers

from anycore import ops
from anycore.tensorflow import register_kernels


def enqueue(ids: Any) -> None:
    tf.raw_ops.EnqueueTPUEmbeddingArbitraryTensorBatch(
        sample_indices_or_row_splits=integers([], []),
        embedding_indices=[ids, ids],
        aggregation_weights=floats([], []),
        mode_override="unspecified",
    )


@tf.function  # type: ignore[untyped-decorator]
def step(ids: Any) -> Any:
    register_kernels()
    enqueue(ids)
    activations = tf.raw_ops.RecvTPUEmbeddingActivations(num_outputs=2, config=BY_FEATURE)
    tf.raw_ops.SendTPUEmbeddingGradients(inputs=activations, learning_rates=floats(1), config=BY_FEATURE)
    enqueue(ids)
    return activations


def test_a_refused_enqueue_ends_a_function_at_once() -> None:
    ops.configure_tpu_embedding(BY_FEATURE, timeout=30)
    started = time.monotonic()
    with pytest.raises(tf.errors.InvalidArgumentError, match="got 99"):
        step(tf.constant([0, 1, 99]))
    assert time.monotonic() - started < 15
    ops.shutdown_tpu_system()


def test_enqueue_stands_between_what_is_before_and_after_it() -> None:
    register_kernels()
    graph = step.get_concrete_function(tf.TensorSpec([3], tf.int32)).graph
    operations = [op for op in graph.get_operations() if "TPUEmbedding" in op.type]
    assert operations[0].type == operations[3].type == "EnqueueTPUEmbeddingArbitraryTensorBatch"
    assert all(earlier in later.control_inputs for earlier, later in pairwise(operations))
