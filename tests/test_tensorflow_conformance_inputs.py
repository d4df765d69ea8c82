"""TensorFlow's own tests of what TPU embeddings take as inputs, here: through the class and through the operations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_embeddings import ACTIVATIONS, ROWS, USER, VIDEO, embedding, feature_config
from tensorflow_interfaces import ByFeature, OfClass
from tensorflow_recipes import (
    HALF,
    KINDS,
    MORE,
    PLAIN,
    Expected,
    assert_close,
    each_interface,
    each_mode,
    look_up,
    recipe,
    train_step,
)

from anycore import ops
from anycore.tensorflow import TPUEmbedding

SGD = embedding.SGD(0.1)


each_kind = pytest.mark.parametrize("kind", ["sparse", "ragged"])


@each_interface
@each_kind
@pytest.mark.parametrize("lengths", [3, 2])
def test_sequences_are_padded_with_zeros(lengths: int, kind: str, interface: Any) -> None:
    sequences = recipe(kind, [2], dict.fromkeys(ROWS, lengths))
    tables = interface(sequences.features(SGD), sequences.shapes)
    activations = look_up(tables, sequences.inputs())
    for name, rows in ROWS.items():
        table = USER if name == "friends" else VIDEO
        expected = np.zeros((2, lengths, table.shape[1]))
        for sample, row in enumerate(rows):
            for position, i in enumerate(row[:lengths]):
                expected[sample, position] = table[i]
        np.testing.assert_array_equal(activations[name], expected)


@pytest.mark.parametrize(
    "shapes",
    [None, 2, [[2, 2], [2, 2], [2, 3]], [[2, 3, 2], [2, 3, 2], [2, 3, 3]]],
    ids=["first batch", "batch size", "without the length", "with the length"],
)
@each_kind
def test_sequences_may_be_built_first(kind: str, shapes: Any) -> None:
    sequences = recipe(kind, [2], dict.fromkeys(ROWS, 3))
    tables = TPUEmbedding(sequences.features(SGD), None)
    if isinstance(shapes, int):
        tables.build(shapes)
    elif shapes is not None:
        tables.build(dict(zip(sorted(ROWS), map(tf.TensorShape, shapes), strict=True)))
    inputs = sequences.inputs()

    def look() -> Any:
        tables.enqueue(inputs, training=False)
        return tables.dequeue()

    assert {name: each.shape.as_list() for name, each in tf.function(look)().items()} == {
        "watched": [2, 3, 4],
        "favorited": [2, 3, 4],
        "friends": [2, 3, 2],
    }


@each_mode
@each_interface
@each_kind
def test_weights_of_a_half_halve_a_sum_and_leave_a_mean(kind: str, interface: Any, mode: Any) -> None:
    given = PLAIN[kind]
    tables = interface(given.features(SGD), given.shapes)
    inputs, weights = given.inputs(), given.weights({name: HALF[name] for name in ("watched", "friends")})
    look = mode(lambda: look_up(tables, inputs, weights))
    activations = look()
    assert_close(look_up(tables, inputs), ACTIVATIONS)
    for name, factor in (("watched", 0.5), ("favorited", 1.0), ("friends", 1.0)):
        np.testing.assert_allclose(activations[name], factor * np.array(ACTIVATIONS[name]), rtol=1e-6)


@each_mode
@each_interface
@each_kind
def test_weights_count_in_training(kind: str, interface: Any, mode: Any) -> None:
    given = PLAIN[kind]
    features = given.features(embedding.Adagrad(0.1))
    rows = {"watched": [[3.0], [0.25, 0.5]], "friends": [[0.5], [1.0, 2.0, 4.0]]}
    tables, expected = interface(features, given.shapes), Expected(features, given.shapes)
    inputs, weights = given.inputs(), given.weights(rows)
    step = mode(lambda: train_step(tables, inputs, weights))
    for _ in range(2):
        assert_close(step(), expected.train_step(given.rows, rows))


@each_mode
@each_interface
@each_kind
def test_samples_without_ids_are_zeros(kind: str, interface: Any, mode: Any) -> None:
    features = {"watched": feature_config(optimizer=SGD)["watched"]}
    tables = interface(features, {"watched": [4]})
    rows = [[0], [0, 1], [0, 1], []]
    inputs = {"watched": KINDS[kind](rows)}
    activations = mode(lambda: look_up(tables, inputs))()["watched"]
    np.testing.assert_array_equal(activations, [VIDEO[row].sum(0) for row in rows])


@each_mode
@pytest.mark.parametrize("interface", [OfClass, ByFeature])
def test_features_may_have_batches_of_their_own(interface: Any, mode: Any) -> None:
    high = MORE["sparse, rank 3"]
    shapes = {**high.shapes, "watched": [1, 3]}
    inputs = {**high.inputs(), "watched": tf.zeros([1, 3, 1], tf.int32)}
    tables = interface(high.features(SGD), shapes)
    activations = mode(lambda: look_up(tables, inputs))()
    assert {name: each.shape.as_list() for name, each in activations.items()} == {
        "watched": [1, 3, 4],
        "favorited": [2, 4, 4],
        "friends": [2, 4, 2],
    }
    np.testing.assert_array_equal(activations["watched"], np.broadcast_to(VIDEO[0], (1, 3, 4)))


@each_mode
def test_inputs_may_be_enqueued_for_a_device(mode: Any) -> None:
    given = PLAIN["sparse"]
    tables, inputs = TPUEmbedding(given.features(SGD), None), given.inputs()

    def look() -> Any:
        tables.enqueue(inputs, training=False, device="/device:CPU:0")
        return tables.dequeue()

    assert_close(mode(look)(), ACTIVATIONS)


@each_mode
@pytest.mark.parametrize("named", ["ordinal", "dynamic ordinal", "ordinal of the device"])
def test_operations_may_name_a_core(named: str, mode: Any) -> None:
    given = PLAIN["ragged"]
    tables, inputs = ByFeature(given.features(SGD), given.shapes), given.inputs()
    core = {"ordinal": {"device_ordinal": 0}, "dynamic ordinal": {"device_ordinal": tf.constant(0)}}.get(named, {})
    kind = "DynamicEnqueue" if named == "dynamic ordinal" else "Enqueue"

    def look() -> Any:
        getattr(tf.raw_ops, f"{kind}TPUEmbeddingArbitraryTensorBatch")(
            sample_indices_or_row_splits=[inputs[name].row_splits for name in tables.names],
            embedding_indices=[inputs[name].values for name in tables.names],
            aggregation_weights=[tf.zeros([0])] * 3,
            mode_override="inference",
            combiners=tables.combiners,
            **core,
        )
        return tables.dequeue()

    assert_close(mode(look)(), ACTIVATIONS)


def test_equal_configurations_are_equal_messages() -> None:
    rng = np.random.default_rng(0)
    sizes = list(zip(rng.integers(100, 1000, 30).tolist(), rng.integers(1, 128, 30).tolist(), strict=True))

    def message() -> bytes:
        rates = [lambda: tf.constant(1.0) for _ in sizes]
        features = [
            embedding.FeatureConfig(
                embedding.TableConfig(
                    rows,
                    dimension,
                    tf.zeros_initializer(),
                    embedding.Adagrad(rate) if dimension % 2 else None,
                    name=f"table{number}",
                )
            )
            for number, ((rows, dimension), rate) in enumerate(zip(sizes, rates, strict=True))
        ]
        tables = TPUEmbedding(features, embedding.Adagrad(0.1))
        tables.build(128)
        graph = tf.function(tables.dequeue, autograph=False).get_concrete_function().graph
        (received,) = (node for node in graph.as_graph_def().node if node.op == "RecvTPUEmbeddingActivations")
        ops.shutdown_tpu_system()
        return bytes(received.attr["config"].s)

    assert message() == message()


def test_the_shape_in_the_configuration_goes_before_that_of_build() -> None:
    features = feature_config(optimizer=SGD)
    for feature in features.values():
        feature.output_shape = tf.TensorShape([2, 4])
    tables = TPUEmbedding(features, None)
    tables.build(dict.fromkeys(features, tf.TensorShape([2, None, None])))
    high = MORE["ragged, rank 3"]
    tables.enqueue(high.inputs(), training=False)
    assert [each.shape.as_list() for each in tf.nest.flatten(tables.dequeue())] == [[2, 4, 4], [2, 4, 2], [2, 4, 4]]
