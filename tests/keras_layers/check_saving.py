"""Models that are saved, loaded and restored, with tables and slots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from engines import assert_same_bits, state
from keras_models import fit, inputs, new_layer, new_model, tables, trained_engine

import anycore.keras
from anycore import ConfigError, EmbeddingConfig, FeatureConfig, TableConfig
from anycore.initializers import Constant, Uniform
from anycore.keras import TPUEmbedding
from anycore.optimizers import Adagrad, SimulatedQuantization, custom_optimizer


def layer_of(model: keras.Model) -> TPUEmbedding:
    return next(layer for layer in model.layers if isinstance(layer, TPUEmbedding))


def test_a_loaded_model_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    model = new_model(new_layer())
    fit(model)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert_same_bits(tables(layer_of(again)), state(trained_engine()))
    assert layer_of(again).updates == layer_of(model).updates
    np.testing.assert_array_equal(model.predict(inputs(), verbose=0), again.predict(inputs(), verbose=0))
    fit(again)
    assert_same_bits(tables(layer_of(again)), state(trained_engine(epochs=2)))


def test_rates_are_saved(tmp_path: Path) -> None:
    layer = new_layer()
    layer.learning_rate("people").assign(0.25)
    new_model(layer).save(tmp_path / "model.keras")
    assert float(layer_of(keras.models.load_model(tmp_path / "model.keras")).learning_rate(0)) == 0.25


def test_weights_alone(tmp_path: Path) -> None:
    model = new_model(new_layer())
    fit(model)
    model.save_weights(tmp_path / "model.weights.h5")
    other = new_model(new_layer(seed=7))
    other.load_weights(tmp_path / "model.weights.h5")
    assert_same_bits(tables(layer_of(other)), tables(layer_of(model)))


def test_weights_of_other_tables_are_refused(tmp_path: Path) -> None:
    config = EmbeddingConfig([TableConfig("t", 4, 2, Adagrad())], [FeatureConfig("f", "t", [1])])
    store: dict[str, object] = {}
    new_layer().save_own_variables(store)
    with pytest.raises(ConfigError, match="has the variables"):
        TPUEmbedding(config).load_own_variables(store)


def test_get_weights_and_set_weights_know_the_tables() -> None:
    model, other = new_model(new_layer()), new_model(new_layer(seed=7))
    fit(model)
    other.set_weights(model.get_weights())
    assert_same_bits(tables(layer_of(other)), tables(layer_of(model)))
    assert layer_of(other).updates == layer_of(model).updates


def test_early_stopping_restores_the_best_tables() -> None:
    model = new_model(new_layer())
    layer = layer_of(model)
    after_first = []

    class WorseAndWorse(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> None:
            logs["metric"] = float(epoch)
            if epoch == 0:
                after_first.append(tables(layer))

    stop = keras.callbacks.EarlyStopping("metric", mode="min", patience=1, restore_best_weights=True)
    fit(model, epochs=5, callbacks=[WorseAndWorse(), stop])
    assert stop.stopped_epoch == 1
    assert_same_bits(tables(layer), after_first[0])


@pytest.mark.parametrize("weights_only", [False, True])
def test_checkpoints_have_the_tables_of_their_epoch(tmp_path: Path, weights_only: bool) -> None:
    name = "{epoch}.weights.h5" if weights_only else "{epoch}.keras"
    fit(
        new_model(new_layer()),
        epochs=2,
        callbacks=[keras.callbacks.ModelCheckpoint(tmp_path / name, save_weights_only=weights_only)],
    )
    for epoch in (1, 2):
        if weights_only:
            model = new_model(new_layer(seed=7))
            model.load_weights(tmp_path / name.format(epoch=epoch))
        else:
            model = keras.models.load_model(tmp_path / name.format(epoch=epoch))
        assert_same_bits(tables(layer_of(model)), state(trained_engine(epochs=epoch)))


def test_a_copy_has_the_same_beginning() -> None:
    model = new_model(new_layer())
    fit(model)
    assert_same_bits(tables(layer_of(keras.models.clone_model(model))), tables(new_layer()))


def rows_as_values(rows: np.ndarray, dimension: int) -> np.ndarray:
    return np.repeat(rows[:, None], dimension, axis=1)


def signum(w, g, lr, factor):  # type: ignore[no-untyped-def]
    return (w - lr * g * factor,)


Signum: Any = custom_optimizer(signum, factor=2.0)


def test_every_kind_of_part_is_saved() -> None:
    quantization = SimulatedQuantization(clipping_limits=(-1.0, 1.0), num_buckets=5)
    config = EmbeddingConfig(
        [
            TableConfig("a", 4, 2, Adagrad(clipping_limits=(None, 0.5), simulated_quantization=quantization)),
            TableConfig("b", 4, 2, Signum(factor=0.5), initializer=rows_as_values),
            TableConfig("c", 4, 2, Adagrad(gradient_accumulation=False), initializer=Uniform(-1, 1)),
            TableConfig("d", 4, 2, Adagrad(), "mean", Constant(3)),
        ],
        [FeatureConfig(name, name, [1]) for name in "abcd"],
    )
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
    layer = TPUEmbedding(config, learning_rates={"a": schedule, "b": 0.5}, seed=5, name="tables")
    with keras.saving.custom_object_scope({"rows_as_values": rows_as_values, "Signum": Signum}):
        again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert again.engine.config == layer.engine.config
    assert again.name == "tables"
    assert again.get_config() == layer.get_config()
    assert_same_bits(tables(again), tables(layer))


def test_an_unknown_optimizer_says_how_to_load_it() -> None:
    config = EmbeddingConfig([TableConfig("t", 4, 2, Signum())], [FeatureConfig("f", "t", [1])])
    saved = keras.saving.serialize_keras_object(TPUEmbedding(config))
    with pytest.raises(ConfigError, match="no optimizer 'Signum': load the model with custom_objects="):
        keras.saving.deserialize_keras_object(saved)


def test_public_names() -> None:
    assert anycore.keras.__all__ == ["DistributedEmbedding", "TPUEmbedding"]
