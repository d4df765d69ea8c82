"""Inputs of `enqueue` as the tensors of its operation, and what is looked up for them."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_embeddings import (
    ACTIVATIONS,
    embedding,
    feature_config,
    features,
    looked_up,
    one_feature,
    parameters,
    ragged,
    served,
    sparse,
)

from anycore import ops
from anycore.tensorflow.embedding import TPUEmbedding
from anycore.tensorflow.inputs import op_inputs


def lists(tensor: Any, weight: Any = None, **options: Any) -> tuple[Any, ...]:
    feature = embedding.FeatureConfig(embedding.TableConfig(8, 4, name="video"), **options)
    index, ids, weights = op_inputs("a/b", feature, tensor, weight)
    assert (index.dtype, ids.dtype, weights.dtype) == (tf.int64, tf.int64, tf.float32)
    return index.numpy().tolist(), ids.numpy().tolist(), weights.numpy().tolist()


ROWS = [[1, 2], [], [3]]
WEIGHTS = [[0.5, 2.0], [], [4.0]]
INDICES = [[0, 0], [0, 1], [2, 0]]


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_dense(dtype: Any) -> None:
    assert lists(tf.constant([[4], [5]], dtype)) == ([], [4, 5], [])


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_sparse(dtype: Any) -> None:
    assert lists(sparse(ROWS, dtype)) == (INDICES, [1, 2, 3], [])


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64, tf.bfloat16])
def test_weights(dtype: Any) -> None:
    assert lists(sparse(ROWS), tf.cast(sparse(WEIGHTS, tf.float32), dtype)) == (INDICES, [1, 2, 3], [0.5, 2, 4])
    assert lists(ragged(ROWS), tf.cast(ragged(WEIGHTS, tf.float32), dtype)) == ([0, 2, 2, 3], [1, 2, 3], [0.5, 2, 4])


def test_ragged_with_short_row_splits() -> None:
    assert lists(ragged(ROWS).with_row_splits_dtype(tf.int32)) == ([0, 2, 2, 3], [1, 2, 3], [])


def test_positions_of_a_sparse_sequence_become_an_axis() -> None:
    assert lists(sparse(ROWS), max_sequence_length=2) == ([[0, 0, 0], [0, 1, 0], [2, 0, 0]], [1, 2, 3], [])
    weights = sparse(WEIGHTS, tf.float32)
    assert lists(sparse(ROWS), weights, max_sequence_length=1) == ([[0, 0, 0], [2, 0, 0]], [1, 3], [0.5, 4])
    assert lists(sparse(ROWS), max_sequence_length=2, output_shape=[3]) == (INDICES, [1, 2, 3], [])


def test_sequences_of_one_are_cut_when_the_operation_could_not_tell() -> None:
    assert lists(ragged(ROWS), max_sequence_length=2)[0] == [0, 2, 2, 3]
    assert lists(ragged(ROWS), max_sequence_length=1) == ([0, 1, 1, 2], [1, 3], [])


def test_a_maximum_length_is_ignored_at_higher_ranks(caplog: pytest.LogCaptureFixture) -> None:
    tensor = tf.SparseTensor([[0, 0, 0]], [1], [2, 2, 2])
    with caplog.at_level(logging.WARNING, "anycore"):
        assert lists(tensor, max_sequence_length=3) == ([[0, 0, 0]], [1], [])
    assert "Input tensor a/b is rank 3" in caplog.text


@pytest.mark.parametrize(
    ("tensor", "weight", "problem"),
    [
        (tf.constant([1]), tf.constant([1.0]), "Weight specified for dense input a/b, which is not allowed"),
        (sparse(ROWS), ragged(ROWS), "Weight for a/b is type .*Ragged.* does not match type input which is SparseTens"),
        (ragged(ROWS), tf.constant([1.0]), "Weight for a/b is type .*Tensor.* does not match type input which is Rag"),
    ],
)
def test_weights_that_are_refused(tensor: Any, weight: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        lists(tensor, weight)


@pytest.mark.parametrize("kind", [sparse, ragged])
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("weighted", [False, True])
def test_lookups_equal_those_for_serving(kind: Any, combiner: str, weighted: bool) -> None:
    tables = one_feature(combiner=combiner)
    inputs = kind([[1, 2], [], [3], [4, 4, 7], []])
    weights = kind([[0.5, 2.0], [], [3.0], [1.0, 0.25, 4.0], []], tf.float32) if weighted else None
    np.testing.assert_allclose(looked_up(tables, inputs, weights), served(tables, inputs, weights), rtol=1e-6)


@pytest.mark.parametrize("kind", [sparse, ragged])
@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_sequences_are_padded_and_cut(kind: Any, length: int) -> None:
    tables = one_feature(max_sequence_length=length)
    inputs = kind([[1, 2, 5], [], [3], [4, 4]])
    activations = looked_up(tables, inputs)
    assert activations.shape == (4, length, 2)
    np.testing.assert_array_equal(activations, served(tables, inputs))


def test_gradients_of_sequences_reach_their_rows() -> None:
    tables = one_feature(max_sequence_length=2)
    tables.enqueue(sparse([[1, 2, 5], [2]]))
    tables.dequeue()
    tables.apply_gradients(tf.constant([[[1.0, 2], [3, 4]], [[5, 6], [7, 8]]]))
    expected = np.arange(16, dtype=np.float32).reshape(8, 2)
    expected[1] -= [0.1, 0.2]
    expected[2] -= [0.8, 1.0]
    np.testing.assert_allclose(parameters(tables)["video"], expected, rtol=1e-6)


def test_inputs_of_higher_rank() -> None:
    tables = one_feature()
    inputs = tf.SparseTensor([[0, 0, 0], [0, 0, 3], [0, 2, 1], [1, 1, 0]], [1, 2, 3, 4], [2, 3, 4])
    activations = looked_up(tables, inputs)
    assert activations.numpy().tolist() == [[[6, 8], [0, 0], [6, 7]], [[0, 0], [8, 9], [0, 0]]]
    del tables
    ops.shutdown_tpu_system()
    tables = one_feature()
    assert looked_up(tables, tf.constant([[[1], [2]], [[3], [4]]])).numpy()[1].tolist() == [[6, 7], [8, 9]]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([[1], [2, 3]], [[[2, 3], [0, 0]], [[4, 5], [6, 7]]]),
        ([[1], [2, 3], [], []], [[[2, 3], [10, 12]], [[0, 0], [0, 0]]]),
    ],
)
def test_ragged_rows_fill_an_output_shape(rows: Any, expected: Any) -> None:
    assert looked_up(one_feature(output_shape=[2, 2]), ragged(rows)).numpy().tolist() == expected


def test_weights_of_some_features() -> None:
    tables = TPUEmbedding(feature_config(), embedding.SGD())
    inputs = {**features(sparse), "favorited": features(ragged)["favorited"]}
    halves = {name: tf.ones_like(inputs[name].values, tf.float32) / 2 for name in inputs}
    weights = {name: inputs[name].with_values(halves[name]) for name in ("watched", "friends")}
    activations = looked_up(tables, inputs, {**weights, "favorited": None})
    np.testing.assert_allclose(activations["watched"], np.array(ACTIVATIONS["watched"]) / 2)
    np.testing.assert_allclose(activations["favorited"], ACTIVATIONS["favorited"])
    np.testing.assert_allclose(activations["friends"], ACTIVATIONS["friends"])
