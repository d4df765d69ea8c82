"""Configs that a layer takes, and those that it refuses by name."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
from engines import assert_same_bits
from keras_models import config, fit, new_layer, new_model, tables

from anycore import ConfigError, EmbeddingConfig, FeatureConfig, InputError, Mode, TableConfig
from anycore.keras import TPUEmbedding
from anycore.keras.inputs import Form
from anycore.optimizers import Adagrad, DynamicInput, StochasticGradientDescent


@pytest.mark.parametrize(
    ("refused", "problem"),
    [
        (config(num_tensor_cores=2), r"a Keras layer is one core, got 2 \(TPUEmbeddingConfiguration.num_tensor_cores"),
        (config(pipeline_execution_with_tensor_core=True), "nothing can be pipelined"),
        (
            EmbeddingConfig([TableConfig("t", 4, 2, Adagrad(), num_features=1)], batch_size_per_tensor_core=2),
            "needs a config with features",
        ),
    ],
)
def test_what_a_layer_cannot_do_is_refused(refused: EmbeddingConfig, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        TPUEmbedding(refused, learning_rates={0: 0.1})


def test_a_config_has_its_optimizers() -> None:
    with pytest.raises(ConfigError, match="optimizer must be None beside an EmbeddingConfig"):
        TPUEmbedding(config(), "sgd", learning_rates={0: 0.1})


def test_a_config_for_inference_looks_up_alone() -> None:
    layer = TPUEmbedding(replace(config(), mode=Mode.INFERENCE), learning_rates={0: 0.1}, seed=3)
    fit(new_model(layer, dense=True))
    assert_same_bits(tables(layer), tables(new_layer()))


def nest(table: Any, **feature: Any) -> Any:
    """Objects of nobody's class with the attributes of TensorFlow's."""
    return [SimpleNamespace(**{"table": SimpleNamespace(**table), "name": None, **feature})]


TABLE = {"name": "t", "vocabulary_size": 9, "dim": 2, "combiner": "sum", "initializer": None, "optimizer": None}


def test_a_nest_of_objects_with_the_right_attributes() -> None:
    layer = TPUEmbedding(nest(TABLE, max_sequence_length=3), StochasticGradientDescent(learning_rate=0.5))
    (symbol,) = layer([keras.Input((3,), dtype="int32")])
    assert symbol.shape == (None, 3, 2)
    assert float(layer.learning_rate("t")) == 0.5
    assert layer.engine.config.features[0].name == "0"


def test_one_table_is_one_object() -> None:
    (shared,), (other,) = nest(TABLE, name="a"), nest({**TABLE, "name": None}, name="b")
    again = SimpleNamespace(table=shared.table, name="c")
    layer = TPUEmbedding({"x": shared, "y": (other, again)}, "sgd")
    assert [table.name for table in layer.engine.config.tables] == ["t", "table_1"]
    assert [feature.table for feature in layer.engine.config.features] == ["t", "table_1", "t"]
    with pytest.raises(ConfigError, match="have the same name 't'"):
        TPUEmbedding([*nest(TABLE), *nest(TABLE)], "sgd")


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({}, "table 't' has no optimizer"),
        ({"optimizer": "sgd", "combiner": None}, "table 't': combiner must be 'sum', 'mean' or 'sqrtn', got None"),
        ({"optimizer": Adagrad(learning_rate=DynamicInput(0))}, "a DynamicInput needs an EmbeddingConfig"),
        ({"optimizer": "sgd", "vocabulary_size": 0}, "vocabulary_size must be at least 1"),
    ],
)
def test_a_table_that_is_none_is_refused(table: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        TPUEmbedding(nest({**TABLE, **table}))


def test_a_keras_distribution_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keras.distribution, "distribution", object)
    with pytest.raises(ConfigError, match="on one device"):
        new_layer().build()


def test_ids_that_keras_may_have_cut_are_refused() -> None:
    table = TableConfig("t", (1 << 31) + 1, 1, Adagrad())
    form = Form("f", "dense", (None,), False, (), table)
    with pytest.raises(InputError, match="int32 does not hold every id below 2147483649"):
        form.read([np.zeros(3, np.int32)])
    assert form.read([np.zeros(3, np.int64)])[1] == (3,)


def test_a_feature_may_have_any_shape() -> None:
    layer = TPUEmbedding(EmbeddingConfig([TableConfig("t", 9, 2, Adagrad())], [FeatureConfig("f", "t", [1, 2, 3])]))
    assert layer({"f": np.zeros((5, 2, 3), np.int32)})["f"].shape == (5, 2, 3, 2)
    assert layer({"f": np.zeros((5, 2, 3, 7), np.int32)})["f"].shape == (5, 2, 3, 2)
    with pytest.raises(InputError, match=r"feature 'f': ids must have shape \[batch, 2, 3\]"):
        layer({"f": np.zeros((5, 3, 2), np.int32)})
