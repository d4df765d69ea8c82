"""`TPUEmbedding`: steps against plain arithmetic, in eager mode and in functions; inputs, order and errors."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import reference_optimizers
import tensorflow as tf
from tensorflow_embeddings import (
    ACTIVATIONS,
    ROWS,
    USER,
    VIDEO,
    counting,
    embedding,
    feature_config,
    features,
    gradients_of_tables,
    looked_up,
    one_feature,
    parameters,
    ragged,
    sparse,
    train_step,
)

from anycore import ops
from anycore.tensorflow.embedding import TPUEmbedding

SGD = embedding.SGD(0.1)


def as_written(step: Any) -> Any:
    return step


MODES = {"eager": as_written, "function": tf.function}


# (optimizer, hyper-parameters as the proto names them, slots in wire order with their starting value)
OPTIMIZERS: dict[str, tuple[Any, dict[str, Any], list[float]]] = {
    "stochastic_gradient_descent": (embedding.SGD(0.1), {}, []),
    "adagrad": (embedding.Adagrad(0.1, initial_accumulator_value=0.5), {}, [0.5]),
    "adagrad_momentum": (
        embedding.AdagradMomentum(0.1, momentum=0.9, use_nesterov=True, exponent=3, epsilon=0.1, beta2=0.9),
        {"momentum": 0.9, "use_nesterov": True, "exponent": 3, "epsilon": 0.1, "beta2": 0.9},
        [0, 0],
    ),
    "ftrl": (
        embedding.FTRL(0.1, l1_regularization_strength=0.5, l2_regularization_strength=0.25, beta=0.75),
        {"l1": 0.5, "l2": 0.25, "lr_power": -0.5, "beta": 0.75, "multiply_linear_by_lr": False},
        [0.1, 0],
    ),
    "adam": (
        embedding.Adam(0.1, epsilon=1e-3),
        {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-3, "use_sum_inside_sqrt": True},
        [0, 0],
    ),
}


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_follow_the_formulas(name: str, mode: Any) -> None:
    optimizer, hyper_parameters, initial_slots = OPTIMIZERS[name]
    tables = TPUEmbedding(feature_config(), optimizer)
    rule: Callable[..., Any] = getattr(reference_optimizers, name)
    state = {
        table: [values.astype(float), *(np.full(values.shape, float(value)) for value in initial_slots)]
        for table, values in {"video": VIDEO, "user": USER}.items()
    }
    step, batch = mode(lambda batch: train_step(tables, batch)), features()
    for number in range(3):
        activations = step(batch)
        if number == 0:
            for feature, values in ACTIVATIONS.items():
                np.testing.assert_array_equal(activations[feature], values)
        for table, gradient in gradients_of_tables(activations).items():
            for row in np.flatnonzero(~np.isnan(gradient).any(axis=1)):
                w, *slots = (variable[row] for variable in state[table])
                new = rule(SimpleNamespace(**hyper_parameters), w, gradient[row], 0.1, *slots)
                for variable, value in zip(state[table], new, strict=True):
                    variable[row] = value
    for table, expected in state.items():
        for ours, theirs in zip(tables._system.engine.retrieve(table).values(), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4)  # 1 - beta2 of Adam in float32


def test_a_step_in_a_function_is_three_operations() -> None:
    tables = TPUEmbedding(feature_config(), SGD)
    step = tf.function(lambda batch: train_step(tables, batch))
    operations = [node.op for node in step.get_concrete_function(features()).graph.as_graph_def().node]
    ours = [operation for operation in operations if "TPUEmbedding" in operation]
    assert sorted(ours) == [
        "EnqueueTPUEmbeddingArbitraryTensorBatch",
        "RecvTPUEmbeddingActivations",
        "SendTPUEmbeddingGradients",
    ]
    assert not {"Cast", "Unique", "PyFunc", "EagerPyFunc"} & set(operations)


def test_several_steps_in_one_function_keep_their_order() -> None:
    results = []
    for unrolled in (1, 3):
        tables = TPUEmbedding(feature_config(), embedding.Adagrad(0.1))

        def steps(batch: Any, tables: TPUEmbedding = tables, unrolled: int = unrolled) -> None:
            for _ in range(unrolled):
                train_step(tables, batch)

        function = tf.function(steps)
        for _ in range(3 // unrolled):
            function(features())
        results.append(parameters(tables))
        ops.shutdown_tpu_system()
    for table, values in results[0].items():
        np.testing.assert_array_equal(results[1][table], values)


def test_batches_may_be_enqueued_ahead() -> None:
    tables = one_feature()
    for row in (3, 5):
        tables.enqueue(tf.constant([row, 0]))
    activations = []
    for _ in range(2):
        activations.append(tables.dequeue().numpy()[0].tolist())
        tables.apply_gradients(tf.ones([2, 2]))
    np.testing.assert_allclose(activations, [[6, 7], [10, 11]])


def test_pipelined_updates_follow_the_next_lookup() -> None:
    table = embedding.TableConfig(8, 2, counting, combiner="sum", name="video")
    tables = TPUEmbedding(embedding.FeatureConfig(table), SGD, pipeline_execution_with_tensor_core=True)
    first = []
    for _ in range(3):
        tables.enqueue(tf.constant([3, 3]))
        first.append(tables.dequeue().numpy()[0, 0])
        tables.apply_gradients(tf.ones([2, 2]))
    np.testing.assert_allclose(first, [6, 6, 5.8])
    np.testing.assert_allclose(parameters(tables)["video"][3], [5.4, 6.4], rtol=1e-6)


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_learning_rates_are_asked_for_at_every_step(mode: Any) -> None:
    rate = tf.Variable(1.0)
    table = embedding.TableConfig(8, 2, tf.zeros_initializer(), combiner="sum", name="video")
    tables = TPUEmbedding(embedding.FeatureConfig(table), embedding.SGD(lambda: rate))

    def step() -> tf.Tensor:
        tables.enqueue(tf.constant([1]))
        activations = tables.dequeue()
        tables.apply_gradients(tf.ones_like(activations))
        return activations[0, 0]

    rates, seen = [1.0, 0.5, 0.25, 2.0], []
    run = mode(step)
    for value in rates:
        rate.assign(value)
        seen.append(run().numpy())
    np.testing.assert_allclose(seen, -np.cumsum([0, *rates[:-1]]))


@pytest.mark.parametrize("training", [False, tf.constant(False)], ids=["bool", "tensor"])
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_evaluation_changes_nothing(mode: Any, training: Any) -> None:
    tables = TPUEmbedding(feature_config(), embedding.Adam(lazy_adam=False))
    train_step(tables, features())
    before = parameters(tables)

    def evaluate(batch: Any) -> Any:
        tables.enqueue(batch, training=training)
        return tables.dequeue()

    for _ in range(2):
        activations = mode(evaluate)(features())
    with pytest.raises(tf.errors.FailedPreconditionError, match="no training step waits for gradients"):
        tables.apply_gradients(activations)
    for table, values in parameters(tables).items():
        np.testing.assert_array_equal(values, before[table])
    train_step(tables, features())


def test_an_id_out_of_range_is_an_error_and_nothing_is_queued() -> None:
    tables = one_feature()
    tables.build(2)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"must be an id in \[0, 8\) of table 'video', got 8"):
        tables.enqueue(tf.constant([1, 8]))
    assert looked_up(tables, tf.constant([1, 2])).numpy().tolist() == [[2, 3], [4, 5]]


def test_any_nest_comes_back_as_it_went_in() -> None:
    config = feature_config()
    nest = {"b": [config["watched"], (config["friends"],)], "a": config["favorited"]}
    tables = TPUEmbedding(nest, SGD)
    inputs = features()
    activations = looked_up(tables, {"b": [inputs["watched"], (inputs["friends"],)], "a": inputs["favorited"]})
    assert type(activations) is dict
    assert type(activations["b"]) is list
    np.testing.assert_array_equal(activations["b"][1][0], ACTIVATIONS["friends"])
    np.testing.assert_array_equal(activations["a"], ACTIVATIONS["favorited"])


# Gradients.


def test_no_gradient_is_a_zero_gradient(caplog: pytest.LogCaptureFixture) -> None:
    tables = TPUEmbedding(feature_config(), embedding.AdagradMomentum(0.1, momentum=0.5))
    train_step(tables, features())
    before = parameters(tables)
    tables.enqueue(features())
    activations = tables.dequeue()
    with caplog.at_level(logging.WARNING, "anycore"):
        tables.apply_gradients({**dict.fromkeys(activations), "friends": tf.zeros_like(activations["friends"])})
    assert "No gradient passed for feature watched, sending zero gradient" in caplog.text
    assert "friends" not in caplog.text
    after = parameters(tables)
    assert (after["video"][:2] != before["video"][:2]).all()
    np.testing.assert_array_equal(after["video"][2:], before["video"][2:])


@pytest.mark.parametrize("dtype", [tf.float64, tf.bfloat16])
def test_gradients_may_be_of_other_types(dtype: Any) -> None:
    tables = one_feature()
    tables.enqueue(tf.constant([1, 1]))
    tables.dequeue()
    tables.apply_gradients(tf.ones([2, 2], dtype))
    np.testing.assert_allclose(parameters(tables)["video"][1], [1.8, 2.8])


def test_gradients_that_are_refused() -> None:
    tables = TPUEmbedding({"a": feature_config()["watched"]}, SGD)
    with pytest.raises(RuntimeError, match="apply_gradients called on unbuilt TPUEmbedding object"):
        tables.apply_gradients({"a": tf.zeros([2, 4])})
    with pytest.raises(RuntimeError, match="dequeue called on unbuilt TPUEmbedding object"):
        tables.dequeue()
    tables.enqueue({"a": tf.constant([1, 2])})
    tables.dequeue()
    with pytest.raises(ValueError, match=r"found non-tensor type: <class 'numpy\.ndarray'> at path a"):
        tables.apply_gradients({"a": np.zeros([2, 4], np.float32)})
    with pytest.raises(ValueError, match=r"Found gradient of shape \(2, 3\) at path a\. Expected shape \[2, 4\]"):
        tables.apply_gradients({"a": tf.zeros([2, 3])})
    with pytest.raises(ValueError, match="structure"):
        tables.apply_gradients({"b": tf.zeros([2, 4])})
    with pytest.raises(TypeError, match="structure"):
        tables.apply_gradients([tf.zeros([2, 4])])
    tables.apply_gradients({"a": tf.zeros([2, 4])})


# Inputs that are refused, and building.


def test_inputs_of_another_structure_are_refused() -> None:
    tables = TPUEmbedding({"a": feature_config()["watched"]}, SGD)
    with pytest.raises(ValueError, match="structure"):
        tables.enqueue({"b": tf.constant([1])})
    with pytest.raises(TypeError, match="structure"):
        tables.enqueue([tf.constant([1])])
    with pytest.raises(ValueError, match="structure"):
        tables.enqueue({"a": tf.constant([1])}, weights={"b": None})
    with pytest.raises(ValueError, match="Input a is of unknown type"):
        tables.enqueue({"a": np.array([1])})
    with pytest.raises(ValueError, match="Weight specified for dense input a"):
        tables.enqueue({"a": tf.constant([1])}, weights={"a": tf.constant([1.0])})


def test_shapes_hold_from_the_first_batch_on() -> None:
    tables = TPUEmbedding(feature_config(), SGD)
    looked_up(tables, features())
    with pytest.raises(ValueError, match="Inconsistent shape founded for input feature favorited"):
        tables.enqueue({**features(), "favorited": sparse([[1]])})


@pytest.mark.parametrize(
    "shapes", [2, np.int64(2), [tf.TensorShape([2, None])] * 3, dict.fromkeys(ROWS, tf.TensorShape([2]))]
)
def test_tables_may_be_built_first(shapes: Any) -> None:
    tables = TPUEmbedding(feature_config(), SGD)
    tables.build(shapes)
    tables.build(5)  # again, it does nothing
    np.testing.assert_array_equal(looked_up(tables, features())["friends"], ACTIVATIONS["friends"])


def test_shapes_come_from_the_configuration_first() -> None:
    tables = one_feature(output_shape=[4])
    with pytest.raises(ValueError, match="Inconsistent shape founded"):
        tables.build(tf.TensorShape([3, None]))
    tables.build()
    assert looked_up(tables, tf.constant([1, 2, 3, 4])).shape == (4, 2)


def test_shapes_that_nobody_knows_are_refused_by_name() -> None:
    tables = TPUEmbedding(feature_config(), SGD)
    for build in (tables.build, lambda: tables.embedding_tables):
        with pytest.raises(ValueError, match="Input Feature favorited has output shape set as <unknown> which is not"):
            build()

    enqueue = tf.function(lambda ids: tables.enqueue(dict.fromkeys(ROWS, ids)))
    with pytest.raises(ValueError, match="is not fully defined"):
        enqueue.get_concrete_function(tf.TensorSpec([None], tf.int64))


def test_shapes_of_a_build_that_failed_are_forgotten() -> None:
    tables = one_feature()
    with pytest.raises(ValueError, match="not fully defined"):
        tables.build(tf.TensorShape([None, None]))
    tables.build(2)


def test_shapes_of_a_batch_size_hold_where_a_function_knows_none() -> None:
    tables = one_feature()
    tables.build(per_replica_batch_size=2)

    signature = [tf.RaggedTensorSpec([None, None], tf.int64)]
    look_up = tf.function(lambda batch: looked_up(tables, batch), input_signature=signature)
    assert look_up(ragged([[1], [1, 2]])).numpy().tolist() == [[2, 3], [6, 8]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be for at most 2 rows, got 3"):
        look_up(ragged([[1], [2], [3]]))


@pytest.mark.parametrize("nest", [{}, {"a": [1]}, None])
def test_a_configuration_without_features_is_refused(nest: Any) -> None:
    with pytest.raises(ValueError, match="feature_config must hold"):
        TPUEmbedding(nest, SGD)


def test_it_needs_eager_execution() -> None:
    tables = one_feature()
    with tf.Graph().as_default(), pytest.raises(RuntimeError, match="TPUEmbedding needs eager execution"):
        tables.build(2)


# Life and tables.


def test_it_stands_where_tensorflows_class_is_expected() -> None:
    assert issubclass(TPUEmbedding, embedding.TPUEmbedding)


def test_one_object_at_a_time_has_the_system() -> None:
    first, second = one_feature(), one_feature()
    first.build(2)
    with pytest.raises(RuntimeError, match="TPU is already initialized for embeddings"):
        second.build(2)
    tables = weakref.ref(first._system.engine)
    del first
    second.build(2)
    gc.collect()
    assert tables() is None
    ops.shutdown_tpu_system()
    with pytest.raises(RuntimeError, match="shut down or configured anew"):
        _ = second.embedding_tables
    third = one_feature()
    third.build(2)
    # Nothing of the old object reaches the tables of the new one.
    for call in (second.dequeue, lambda: second.enqueue(tf.constant([1, 2]))):
        with pytest.raises(RuntimeError, match="shut down or configured anew"):
            call()


def test_a_failed_build_can_be_tried_again() -> None:
    class Failing:
        fails = True

        def __call__(self, shape: Any, dtype: Any) -> tf.Tensor:
            if self.fails:
                raise OSError("no values")
            return counting(shape, dtype)

    initializer = Failing()
    tables = TPUEmbedding(feature_config(initializer=initializer), SGD)
    with pytest.raises(OSError, match="no values"):
        tables.build(2)
    assert not ops.is_tpu_embedding_initialized()
    initializer.fails = False
    tables.build(2)
    np.testing.assert_array_equal(parameters(tables)["video"], VIDEO)
