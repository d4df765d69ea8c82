"""A model that fits, evaluates and predicts."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from engines import assert_same_bits, state
from keras_models import (
    BATCH,
    SAMPLES,
    config,
    fit,
    half_squared_distance,
    inputs,
    new_layer,
    new_model,
    tables,
    targets,
    trained_engine,
)

from anycore import ConfigError, EmbeddingEngine, InputError, Ragged

STEPS_OF_AN_EPOCH = -(-SAMPLES // BATCH)


def test_fit_gives_the_bits_of_the_engine() -> None:
    layer = new_layer()
    fit(new_model(layer))
    assert_same_bits(tables(layer), state(trained_engine()))
    assert int(layer.updates) == STEPS_OF_AN_EPOCH


def test_the_model_without_compilation_gives_them_too() -> None:
    layer = new_layer()
    model = new_model(layer)
    model.compile("sgd", model.loss, run_eagerly=True)
    fit(model)
    assert_same_bits(tables(layer), state(trained_engine()))


def test_the_dense_part_has_the_optimizer_of_the_model() -> None:
    layer = new_layer()
    model = new_model(layer, dense=True)
    before = [keras.ops.convert_to_numpy(weight) for weight in model.layers[-1].weights]
    losses = fit(model, epochs=8).history["loss"]
    assert losses[-1] < 0.8 * losses[0]
    for weight, old in zip(model.layers[-1].weights, before, strict=True):
        assert (keras.ops.convert_to_numpy(weight) != old).any()
    slots = [variable.path for variable in model.optimizer.variables]
    assert len(slots) == 2 + 2 * 3, slots  # step and rate; momentum and velocity of kernel, bias and anchor
    assert float(keras.ops.convert_to_numpy(layer.anchor)) == 0


def test_evaluate_and_predict_look_up_alone() -> None:
    layer = new_layer()
    model = new_model(layer)
    fit(model)
    before = tables(layer)
    loss = model.evaluate(inputs(), targets(), batch_size=SAMPLES, verbose=0)
    predicted = model.predict(inputs(), batch_size=50, verbose=0)
    np.testing.assert_allclose(loss, 0.5 * np.square(predicted - targets()).sum(), rtol=1e-5)
    np.testing.assert_array_equal(predicted[:, 4:8], before["people"]["parameters"][inputs()["who"]])
    assert_same_bits(tables(layer), before)


def test_validation_between_the_steps_does_no_harm() -> None:
    layer = new_layer()
    fit(new_model(layer), validation_data=(inputs(5), targets(5)), validation_batch_size=2)
    assert_same_bits(tables(layer), state(trained_engine()))


def test_a_forward_pass_that_trains_nothing_leaves_no_trace() -> None:
    layer = new_layer()
    model = new_model(layer)
    model(inputs(), training=True)
    fit(model)
    assert_same_bits(tables(layer), state(trained_engine()))


def test_a_frozen_layer_keeps_its_tables() -> None:
    layer = new_layer()
    model = new_model(layer, dense=True)
    layer.trainable = False
    model.compile("sgd", model.loss)
    before = tables(layer)
    fit(model)
    assert_same_bits(tables(layer), before)


def test_activations_that_nothing_needs_have_zero_gradients() -> None:
    layer = new_layer()
    symbols = {name: keras.Input(ids.shape[1:], dtype="int32", name=name) for name, ids in inputs(1).items()}
    model = keras.Model(symbols, layer(symbols)["who"])
    model.compile("sgd", half_squared_distance)
    wanted = targets(BATCH)[:, :4]
    model.fit(inputs(BATCH), wanted, batch_size=BATCH, shuffle=False, verbose=0)
    engine = EmbeddingEngine(config(), seed=3)
    ids: dict[str, Any] = dict(inputs(BATCH))
    ids["watched"] = Ragged(np.arange(BATCH + 1) * 3, ids["watched"].ravel())
    engine.update(ids, [None, engine.look_up(ids)[1] - wanted, None, None], [0.01])
    assert_same_bits(tables(layer), state(engine))


class Subclassed(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = new_layer()

    def call(self, inputs: Any) -> Any:
        activations = self.embedding(inputs)
        widths = {"watched": 4, "who": 4, "next": 4, "words": 8}
        flat = [keras.ops.reshape(activations[name], (-1, width)) for name, width in widths.items()]
        return keras.ops.concatenate(flat, axis=1)


def test_a_model_of_ones_own_class_is_built_by_fit() -> None:
    model = Subclassed()
    model.compile("sgd", new_model(new_layer()).loss)
    fit(model)
    assert_same_bits(tables(model.embedding), state(trained_engine()))


def test_activations_have_the_dtype_of_the_policy() -> None:
    layer = new_layer(dtype="mixed_bfloat16")
    fit(new_model(layer))
    assert "bfloat16" in str(layer(inputs())["who"].dtype)
    before, exact = tables(layer), state(trained_engine())
    np.testing.assert_allclose(before["movies"]["parameters"], exact["movies"]["parameters"], atol=0.03)


def test_a_scaled_loss_is_refused() -> None:
    model = new_model(new_layer(dtype="mixed_float16"))
    with pytest.raises(ConfigError, match="use mixed_bfloat16"):
        fit(model)


def test_a_bad_id_names_its_feature_and_changes_nothing() -> None:
    layer = new_layer()
    model = new_model(layer)
    before = tables(layer)
    bad = inputs()
    bad["next"][5] = 40
    with pytest.raises(Exception, match=r"feature 'next': embedding_indices\[5\] must be an id in \[0, 40\)"):
        model.fit(bad, targets(), batch_size=BATCH, shuffle=False, verbose=0)
    assert_same_bits(tables(layer), before)


def test_another_nest_is_refused() -> None:
    layer = new_layer()
    with pytest.raises(InputError, match="inputs must be nested as its features are"):
        layer({"who": np.zeros(3, np.int32)})


def test_summary_counts_the_tables() -> None:
    lines: list[str] = []
    new_model(new_layer()).summary(print_fn=lambda line, **_: lines.append(line))
    parameters = 40 * 4 * 2 + 30 * 4 * 3 + 20 * 4 * 3 + 5  # anchor, updates, rates
    assert any(f"Total params: {parameters:,}" in line for line in "\n".join(lines).splitlines())
