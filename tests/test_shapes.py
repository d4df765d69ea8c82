"""Shapes of inputs and activations."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from tensorflow_embeddings import embedding

from anycore.tensorflow.shapes import (
    check_consistent,
    check_fully_defined,
    input_shape,
    merged,
    output_shapes,
    output_shapes_of_batch_size,
)


def feature(**options: Any) -> Any:
    return embedding.FeatureConfig(embedding.TableConfig(8, 4, name="video"), **options)


def sparse_of(*shape: int) -> tf.SparseTensor:
    return tf.SparseTensor([[0] * len(shape)], [0], shape)


def output_shape(tensor: Any, **options: Any) -> list[int | None]:
    the_feature = feature(**options)
    return output_shapes([the_feature], [input_shape("path", the_feature, tensor)])[0].as_list()


@pytest.mark.parametrize(
    ("tensor", "options", "expected"),
    [
        (tf.zeros([5]), {}, [5]),
        (tf.zeros([5, 1]), {}, [5]),
        (tf.zeros([5, 3, 1]), {}, [5, 3]),
        (tf.zeros([5, 1]), {"max_sequence_length": 3}, [5]),
        (sparse_of(5, 9), {}, [5]),
        (sparse_of(5, 9), {"max_sequence_length": 3}, [5, 3]),
        (sparse_of(5, 9), {"max_sequence_length": 3, "output_shape": [5]}, [5]),
        (sparse_of(5, 3, 9), {}, [5, 3]),
        (sparse_of(5, 3, 9), {"max_sequence_length": 7}, [5, 3]),
        (tf.ragged.constant([[1], [2, 3]]), {}, [2]),
        (tf.ragged.constant([[1], [2, 3]]), {"max_sequence_length": 3}, [2, 3]),
    ],
)
def test_output_shapes_of_inputs(tensor: Any, options: dict[str, Any], expected: list[int]) -> None:
    assert output_shape(tensor, **options) == expected


@pytest.mark.parametrize(
    ("tensor", "problem"),
    [
        (tf.zeros([]), "Only rank 1 and above dense tensor is supported, find rank 0"),
        (tf.zeros([5, 3]), r"should have last dimension as 1 .* Instead got dense tensor as shape \[5, 3\]"),
        (sparse_of(5), "Only rank 2 and above sparse tensor is supported, find rank 1 sparse tensor for input path"),
        (
            tf.ragged.constant([[[1]], [[2]]]),
            "Only rank 2 ragged tensor is supported, find rank 3 ragged tensor for input path",
        ),
        ([1, 2], "Input path is of unknown type <class 'list'>. Please only pass Tensor, SparseTensor or RaggedTensor"),
    ],
)
def test_inputs_that_are_refused(tensor: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        output_shape(tensor)


def test_an_unknown_rank_is_refused_by_name() -> None:
    function = tf.function(output_shape, input_signature=[tf.TensorSpec(None)])
    with pytest.raises(ValueError, match="Input path has an unknown rank"):
        function.get_concrete_function()


@pytest.mark.parametrize(
    ("shape", "options", "expected"),
    [
        ([5], {}, [5]),
        ([5, 1], {"max_sequence_length": 3}, [5]),
        ([5, None], {"max_sequence_length": 3}, [5, 3]),
        ([5, 3, None], {"max_sequence_length": 7}, [5, 3]),
    ],
)
def test_output_shapes_of_shapes(shape: Any, options: dict[str, Any], expected: list[int]) -> None:
    assert output_shapes([feature(**options)], [tf.TensorShape(shape)])[0].as_list() == expected


@pytest.mark.parametrize("shape", [None, []])
def test_shapes_without_an_axis_are_refused(shape: Any) -> None:
    with pytest.raises(ValueError, match="Rank must be 1 and above"):
        output_shapes([feature()], [tf.TensorShape(shape)])


def test_output_shapes_of_a_batch_size() -> None:
    shapes = output_shapes_of_batch_size([feature(), feature(max_sequence_length=3)], 5)
    assert [shape.as_list() for shape in shapes] == [[5], [5, 3]]


UNKNOWN = tf.TensorShape(None)


def test_known_shapes_go_before_incoming_ones() -> None:
    known, incoming = [tf.TensorShape([2, 3]), UNKNOWN], [tf.TensorShape([6]), tf.TensorShape([5])]
    assert [shape.as_list() for shape in merged(["a", "b"], known, incoming)] == [[2, 3], [5]]


@pytest.mark.parametrize(("known", "incoming"), [([2], [3]), ([2], [2, 3]), ([2, 3], [2, 4]), ([2, 3, 4], [2, 3, 5])])
def test_contradicting_shapes_are_refused(known: list[int], incoming: list[int]) -> None:
    text = "Inconsistent shape founded for input feature a/b, Output shape is set to be .*, But got incoming output"
    with pytest.raises(ValueError, match=text):
        check_consistent(["a/b"], [tf.TensorShape(known)], [tf.TensorShape(incoming)])


@pytest.mark.parametrize(("known", "incoming"), [([2], [None]), ([2, 3], [6]), ([2, 3, 4], [2, 12]), ([2], None)])
def test_shapes_that_may_fit_pass(known: list[int], incoming: Any) -> None:
    check_consistent(["a"], [tf.TensorShape(known)], [tf.TensorShape(incoming)])


@pytest.mark.parametrize("shape", [None, [None, 3]])
def test_open_shapes_are_refused(shape: Any) -> None:
    with pytest.raises(ValueError, match=r"Input Feature a has output shape set as .* which is not fully defined"):
        check_fully_defined(["a"], [tf.TensorShape(shape)])
