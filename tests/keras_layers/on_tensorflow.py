"""Only on Keras' TensorFlow backend."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import keras
import keras_models
import numpy as np
import pytest
import tensorflow as tf
from engines import assert_same_bits, state
from keras_models import tables
from row_numbers import looked_up, new_layer, row_number

import anycore.optimizers as ours
from anycore import ConfigError, InputError
from anycore.keras import TPUEmbedding
from anycore.optimizers import SimulatedQuantization


@pytest.mark.parametrize("kind", ["ragged", "sparse"])
def test_rows_of_any_length(kind: str) -> None:
    ids = tf.ragged.constant([[3, 1], [], [8]], dtype=tf.int64, row_splits_dtype=tf.int64)
    weights = tf.ragged.constant([[2.0, 4.0], [], [0.5]], row_splits_dtype=tf.int64)
    if kind == "sparse":
        ids, weights = ids.to_sparse(), weights.to_sparse()
    assert looked_up(new_layer(), ids) == [4, 0, 8]
    assert looked_up(new_layer(combiner="mean"), ids) == [2, 0, 8]
    assert looked_up(new_layer(), ids, weights) == [10, 0, 4]
    assert looked_up(new_layer((1, 1)), ids) == [[3], [0], [8]]
    assert looked_up(new_layer((1, 3)), ids) == [[3, 1, 0], [0, 0, 0], [8, 0, 0]]


@pytest.mark.parametrize("kind", ["ragged", "sparse"])
def test_they_train(kind: str) -> None:
    ids = tf.ragged.constant([[3, 1], [], [8]], dtype=tf.int64)
    symbol = keras.Input((None,), dtype="int64", name="f", ragged=kind == "ragged", sparse=kind == "sparse")
    layer = new_layer()
    model = keras.Model({"f": symbol}, layer({"f": symbol})["f"])
    assert model.output_shape == (None, 2)
    gradient = np.array([[1, 2], [5, 6], [4, 8]], np.float32)
    data = tf.data.Dataset.from_tensors(({"f": ids if kind == "ragged" else ids.to_sparse()}, gradient))
    model.compile("sgd", lambda wanted, got: keras.ops.sum(keras.ops.multiply(wanted, got)))
    model.fit(data, shuffle=False, verbose=0)
    moved = row_number(np.arange(9), 2) - tables(layer)["t"]["parameters"]
    np.testing.assert_array_equal(moved[[1, 3, 8]], [[1, 2], [1, 2], [4, 8]])


def test_deeper_rags_are_refused() -> None:
    with pytest.raises(InputError, match="second axis alone"):
        looked_up(new_layer((1, 3)), tf.ragged.constant([[[3], [1]], [], [[8]]]))


def test_keras_does_not_compile_with_xla() -> None:
    symbol = keras.Input((), dtype="int64", name="f")
    model = keras.Model({"f": symbol}, new_layer()({"f": symbol})["f"])
    model.compile("sgd", "mse")
    assert not model.jit_compile
    with pytest.warns(UserWarning, match="doesn't support `jit_compile=True`"):
        model.compile("sgd", "mse", jit_compile=True)


def test_one_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    class Several:
        num_replicas_in_sync = 2

    layer = new_layer()
    monkeypatch.setattr(tf.distribute, "get_strategy", Several)
    with pytest.raises(ConfigError, match="needs one replica"):
        layer({"f": np.zeros(3, np.int64)}, training=True)


def test_several_steps_an_execution() -> None:
    layer = keras_models.new_layer()
    model = keras_models.new_model(layer)
    model.compile("sgd", model.loss, steps_per_execution=4)
    keras_models.fit(model)
    assert_same_bits(tables(layer), state(keras_models.trained_engine()))


tpu = tf.tpu.experimental.embedding


def test_configs_of_tensorflow() -> None:
    quantization = tpu.QuantizationConfig(num_buckets=4, lower=-1.0, upper=1.0)
    movies = tpu.TableConfig(9, 2, combiner="sum", name="movies", quantization_config=quantization)
    people = tpu.TableConfig(8, 2, tf.constant_initializer(3.0), tpu.SGD(lambda: 0.5), "mean", "people")
    layer = TPUEmbedding(
        {
            "liked": tpu.FeatureConfig(movies, name="liked"),
            "history": tpu.FeatureConfig(movies, max_sequence_length=4, name="history"),
            "pairs": tpu.FeatureConfig(people, output_shape=[5, 2], name="pairs"),
        },
        tpu.Adagrad(0.1, initial_accumulator_value=0.3),
    )
    history, liked, pairs = layer.engine.config.features
    assert (history.input_shape, liked.input_shape, pairs.input_shape) == ((1, 4), (1,), (1, 2))
    table, _ = layer.engine.config.tables
    assert table.optimizer.simulated_quantization == SimulatedQuantization(clipping_limits=(-1, 1), num_buckets=4)
    assert (tables(layer)["movies"]["accumulators"] == np.float32(0.3)).all()
    assert 0.3 < tables(layer)["movies"]["parameters"].std() < 1.2
    assert (tables(layer)["people"]["parameters"] == 3).all()


@pytest.mark.parametrize(
    ("theirs", "wanted"),
    [
        (tpu.SGD(0.1, clipvalue=0.5), ours.StochasticGradientDescent(gradient_clipping_limits=(-0.5, 0.5))),
        (tpu.Adagrad(0.1, use_gradient_accumulation=False), ours.Adagrad(gradient_accumulation=False)),
        (
            tpu.AdagradMomentum(0.1, momentum=0.5, use_nesterov=True, exponent=3, beta2=0.9, epsilon=1e-3),
            ours.AdagradMomentum(momentum=0.5, use_nesterov=True, exponent=3, beta2=0.9, epsilon=1e-3),
        ),
        (
            tpu.FTRL(0.1, -0.4, 0.01, 0.02, 0.03, multiply_linear_by_learning_rate=True),
            ours.FTRL(lr_power=-0.4, l1=0.01, l2=0.02, beta=0.03, multiply_linear_by_lr=True),
        ),
        (
            tpu.Adam(0.1, 0.8, 0.9, 1e-3, lazy_adam=False, sum_inside_sqrt=False, clip_weight_max=2.0),
            ours.Adam(beta1=0.8, beta2=0.9, epsilon=1e-3, use_non_lazy_adam=True, clipping_limits=(None, 2.0)),
        ),
        (
            tpu.Adam(0.1, weight_decay_factor=0.1, multiply_weight_decay_factor_by_learning_rate=True),
            ours.Adam(
                use_sum_inside_sqrt=True,
                weight_decay_factor=0.1,
                multiply_weight_decay_factor_by_learning_rate=True,
            ),
        ),
    ],
)
def test_optimizers_of_tensorflow(theirs: Any, wanted: ours.Optimizer) -> None:
    table = tpu.TableConfig(9, 2, optimizer=theirs, name="t")
    layer = TPUEmbedding(tpu.FeatureConfig(table))
    (config,) = layer.engine.config.tables
    assert replace(config.optimizer, learning_rate=wanted.learning_rate) == wanted
    assert float(layer.learning_rate("t")) == np.float32(0.1)


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"optimizer": tpu.CustomOptimizer(lambda gradient, variables: variables)}, "unsupported optimizer class"),
        ({"optimizer": tpu.Adagrad(0.1, slot_variable_creation_fn=dict)}, "slot_variable_creation_fn must be None"),
        ({"optimizer": tpu.SGD(0.1), "dtype": tf.int32}, "dtype must be float32"),
    ],
)
def test_what_only_a_tpu_does_is_refused(table: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=f"table 't': .*{problem}"):
        TPUEmbedding(tpu.FeatureConfig(tpu.TableConfig(9, 2, name="t", **table)))
