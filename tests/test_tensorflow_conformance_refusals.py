"""TensorFlow's own tests of what TPU embeddings refuse, here: the class and the operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from tensorflow_embeddings import ACTIVATIONS, ROWS, embedding, feature_config
from tensorflow_interfaces import ByFeature, configuration
from tensorflow_recipes import HALF, MORE, PLAIN, assert_close, each_mode, look_up

from anycore.tensorflow import TPUEmbedding, register_kernels

SGD = embedding.SGD(0.1)


# The class.


def refused_inputs() -> dict[str, tuple[Any, Any, type[Exception], str]]:
    """Inputs, weights, and what must be raised."""
    sparse_, ragged_, dense_ = (PLAIN[kind] for kind in ("sparse", "ragged", "dense"))
    weights = {name: [[0.5] * len(row) for row in rows] for name, rows in dense_.rows.items()}
    one = {"watched": sparse_.inputs()["watched"]}
    no_match = "which does not match type input which is"
    return {
        "weights of dense": (dense_.inputs(), dense_.weights(weights), ValueError, "Weight specified for dense input"),
        "ragged of sparse": (sparse_.inputs(), ragged_.weights(HALF), ValueError, f"{no_match} SparseTensor."),
        "sparse of ragged": (ragged_.inputs(), sparse_.weights(HALF), ValueError, f"{no_match} RaggedTensor."),
        "features": (one, None, ValueError, "don't have the same nested structure"),
        "weights": (sparse_.inputs(), one, ValueError, "don't have the same nested structure"),
        "list": (list(sparse_.inputs().values()), None, TypeError, "don't have the same nested structure"),
        "shape": (MORE["sparse, rank 3"].inputs(), None, ValueError, "Inconsistent shape founded for input feature"),
    }


@each_mode
@pytest.mark.parametrize("name", refused_inputs())
def test_the_class_refuses_inputs(name: str, mode: Any) -> None:
    inputs, weights, error, text = refused_inputs()[name]
    tables = TPUEmbedding(PLAIN["sparse"].features(SGD), None)
    tables.build(2)
    with pytest.raises(error, match=text):
        mode(lambda: tables.enqueue(inputs, weights, training=False))()
    tables.enqueue(PLAIN["sparse"].inputs(), training=False)
    assert_close(tables.dequeue(), ACTIVATIONS)


@each_mode
@pytest.mark.parametrize(
    ("gradients", "error", "text"),
    [
        (dict.fromkeys(ROWS, 1), ValueError, "found non-tensor type"),
        ([1, 2, 3], TypeError, "don't have the same nested structure"),
        (dict.fromkeys(ROWS, tf.zeros([2, 2])), ValueError, "Found gradient of shape"),
    ],
)
def test_the_class_refuses_gradients(gradients: Any, error: Any, text: str, mode: Any) -> None:
    tables = TPUEmbedding(PLAIN["sparse"].features(SGD), None)
    tables.build(64)
    with pytest.raises(error, match=text):
        mode(lambda: tables.apply_gradients(gradients))()


def test_the_class_refuses_tables_of_one_name() -> None:
    features = {
        name: embedding.FeatureConfig(embedding.TableConfig(4, 2, name="table"), name=name) for name in ("a", "b")
    }
    with pytest.raises(ValueError, match=r"Multiple tables with name table found\."):
        TPUEmbedding(features, SGD)


def test_the_class_refuses_other_optimizers() -> None:
    with pytest.raises(ValueError, match=r"is an unsupported optimizer class\."):
        TPUEmbedding(feature_config(), tf.keras.optimizers.SGD())


@pytest.mark.parametrize(
    ("output_shape", "shapes", "text"),
    [
        ([2, 4], [1, 1, 1], "Inconsistent shape founded for input feature"),
        (None, [1, None, None], "Input Feature .* which is not fully defined"),
        (None, None, "Input Feature .* which is not fully defined"),
        ([2, None], None, "Input Feature .* which is not fully defined"),
    ],
)
def test_the_class_refuses_shapes(output_shape: Any, shapes: Any, text: str) -> None:
    features = feature_config(optimizer=SGD)
    for feature in features.values():
        feature.output_shape = tf.TensorShape(output_shape)
    tables = TPUEmbedding(features, None)
    with pytest.raises(ValueError, match=text):
        tables.build(None if shapes is None else dict.fromkeys(features, tf.TensorShape(shapes)))


@each_mode
def test_the_class_refuses_what_contradicts_the_shapes_that_it_was_built_with(mode: Any) -> None:
    tables = TPUEmbedding(feature_config(optimizer=SGD), None)
    tables.build(dict.fromkeys(ROWS, tf.TensorShape([1, 1, 1])))
    inputs = MORE["sparse, rank 3"].inputs()
    with pytest.raises(ValueError, match="Inconsistent shape founded for input feature"):
        mode(lambda: tables.enqueue(inputs, training=False))()


def test_one_object_at_a_time_is_built() -> None:
    first, second = (TPUEmbedding(PLAIN["sparse"].features(SGD), None) for _ in range(2))
    first.build(64)
    with pytest.raises(RuntimeError, match=r"TPU is already initialized for embeddings\."):
        second.build(64)


# The operations.


Call = Callable[[ByFeature], Any]


def enqueuing(changed: str | None = None, tensor: Any = None, features: int = 3, **attributes: Any) -> Call:
    """Returns a call that enqueues with a tensor of the first feature changed, fewer features or other attributes."""

    def call(tables: ByFeature) -> None:
        inputs = [PLAIN["ragged"].inputs()[name] for name in tables.names]
        lists = {
            "sample_indices_or_row_splits": [each.row_splits for each in inputs],
            "embedding_indices": [each.values for each in inputs],
            "aggregation_weights": [tf.zeros([0])] * 3,
        }
        if changed is not None:
            lists[changed][0] = tf.constant(tensor, lists[changed][0].dtype)
        lists = {name: tensors[:features] for name, tensors in lists.items()}
        given = {"mode_override": "train", "device_ordinal": 0, "combiners": tables.combiners}
        tf.raw_ops.EnqueueTPUEmbeddingArbitraryTensorBatch(**(lists | given | attributes))

    return call


def receiving(num_outputs: int = 3, config: bytes | None = None) -> Call:
    """Returns a call that receives activations."""
    return lambda tables: tf.raw_ops.RecvTPUEmbeddingActivations(
        num_outputs=num_outputs, config=tables.config if config is None else config
    )


def sending(change: Callable[[list[Any]], list[Any]] = list, rates: Any = ()) -> Call:
    """Returns a call that finishes a step with gradients that are changed."""

    def call(tables: ByFeature) -> None:
        tables.enqueue(PLAIN["ragged"].inputs())
        gradients = [tf.zeros_like(each) for each in tables.dequeue().values()]
        tf.raw_ops.SendTPUEmbeddingGradients(inputs=change(gradients), learning_rates=rates, config=tables.config)

    return call


def loading(**changed: Any) -> Call:
    """Returns a call that loads a table with something changed."""

    def call(tables: ByFeature) -> None:
        given = {"parameters": tf.zeros([8, 4]), "num_shards": 1, "shard_id": 0, "table_name": "video"}
        tf.raw_ops.LoadTPUEmbeddingStochasticGradientDescentParameters(**(given | changed))

    return call


def configuring(field: str, **changed: Any) -> Call:
    """Returns a call that configures the system with the second table or feature changed, or lacking something."""

    def call(tables: ByFeature) -> None:
        message = configuration(tables.features, tables.shapes)
        descriptor = getattr(message, field)[1]
        for name, value in changed.items():
            descriptor.ClearField(name)
            if value is not None:
                setattr(descriptor, name, value)
        tf.raw_ops.ConfigureTPUEmbedding(config=message.SerializeToString())

    return call


SPLITS, IDS, WEIGHTS = "sample_indices_or_row_splits", "embedding_indices", "aggregation_weights"
NO_NAME = "exactly one of table_id or table_name must be non-default"
REFUSED: dict[str, tuple[Call, str]] = {
    "large id": (enqueuing(IDS, [0, 1, 8]), r"feature 'favorited': .* an id in \[0, 8\) of table 'video', got 8"),
    "negative id": (enqueuing(IDS, [0, 1, -1]), r"must be an id in \[0, 8\) of table 'video', got -1"),
    "few ids": (enqueuing(IDS, [0, 1]), "must be the number of embedding_indices, 2, got 3"),
    "few weights": (enqueuing(WEIGHTS, [1, 2]), "must be as many as embedding_indices"),
    "no number": (enqueuing(WEIGHTS, [1, 2, float("nan")]), "must be finite, got nan"),
    "many rows": (enqueuing(SPLITS, [0, 1, 2, 3]), "must be for at most 2 rows, got 3"),
    "first split": (enqueuing(SPLITS, [1, 2, 3]), r"sample_splits\[0\] must be 0, got 1"),
    "falling splits": (enqueuing(SPLITS, [0, 4, 3]), "sample_splits must not descend"),
    "large row": (enqueuing(SPLITS, [[0, 0], [0, 1], [2, 0]]), r"must be a row in \[0, 2\), got 2"),
    "falling rows": (enqueuing(SPLITS, [[1, 0], [0, 1], [1, 1]]), "sample_indices must ascend"),
    "few features": (enqueuing(features=2), "expected 3 inputs, one each for .*, got 2"),
    "mode": (enqueuing(mode_override="evaluation"), "Unsupported value 'evaluation' specified for mode_override"),
    "combiner": (
        enqueuing(combiners=["sum", "max"]),
        'Invalid combiner: only "sum", "mean", and "sqrtn" are supported',
    ),
    "few combiners": (enqueuing(combiners=["sum"]), "Invalid length of combiners. Have 1 but expected 0"),
    "core": (enqueuing(device_ordinal=1), r"core must be in \[0, 1\), got 1"),
    "few outputs": (receiving(2), "num_outputs must be 3, got 2|num outputs != size of output shapes"),
    "malformed": (receiving(config=b"no message"), "Malformed tpu_embedding_config"),
    "empty": (receiving(config=b""), "TPU embedding config is empty|num outputs != size of output shapes"),
    "few gradients": (sending(lambda given: given[:2]), "expected 3 gradients, as many as activations, got 2"),
    "gradient": (sending(lambda given: [*given[1:], given[0]]), r"shape of its activations, \[2, 4\], got \[2, 2\]"),
    "many rates": (sending(rates=[0.5]), "expected 0 learning_rates, one for each dynamic learning rate tag .* got 1"),
    "list of rates": (sending(rates=[[0.5]]), "expected 0 learning_rates|Shape must be rank 0 but is rank 1"),
    "two names": (loading(table_id=0), NO_NAME),
    "no name": (loading(table_name=""), NO_NAME),
    "table": (loading(table_name="nobody"), "there is no table 'nobody'"),
    "number": (loading(table_name="", table_id=7), "there is no table 7"),
    "dimension": (loading(parameters=tf.zeros([8, 3])), r"must have shape \(8, 4\), got \(8, 3\)"),
    "rank": (loading(parameters=tf.zeros([8])), r"must have shape \(8, 4\), got \(8,\)|must be rank 2 but is rank 1"),
    "shard": (loading(shard_id=1), "shard_id must be at least 0 and less than num_shards = 1, got 1"),
    "equal names": (configuring("table_descriptor", name="video"), "have the same name 'video'"),
    "no optimizer": (configuring("table_descriptor", optimization_parameters=None), "No optimization algorithm spec"),
    "no such table": (configuring("feature_descriptor", table_id=5), r"table_id must be in \[0, 2\), got 5"),
}


@each_mode
@pytest.mark.parametrize("name", REFUSED)
def test_the_operations_refuse_arguments(name: str, mode: Any) -> None:
    given = PLAIN["ragged"]
    tables, (call, text) = ByFeature(given.features(SGD), given.shapes), REFUSED[name]

    def call_it() -> None:
        call(tables)

    # Where a function is traced, TensorFlow refuses some of it without asking the kernel.
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match=text):
        mode(call_it)()


@each_mode
def test_what_is_refused_is_not_queued(mode: Any) -> None:
    given = PLAIN["ragged"]
    tables = ByFeature(given.features(SGD), given.shapes)
    for name in ("large id", "few weights", "mode"):
        call, text = REFUSED[name]

        def call_it(call: Call = call) -> None:
            call(tables)

        with pytest.raises(tf.errors.InvalidArgumentError, match=text):
            mode(call_it)()
    activations = look_up(tables, given.inputs())
    assert_close(activations, ACTIVATIONS)
    with pytest.raises(tf.errors.FailedPreconditionError, match="no training step waits for gradients"):
        mode(lambda: tables.apply_gradients(activations))()


def test_activations_that_nobody_enqueued_are_refused_in_time() -> None:
    given = PLAIN["ragged"]
    try:
        register_kernels(timeout=0.05)
        tables = ByFeature(given.features(SGD), given.shapes)
        with pytest.raises(tf.errors.DeadlineExceededError, match="was never enqueued"):
            tables.dequeue()
    finally:
        register_kernels(timeout=60.0)
