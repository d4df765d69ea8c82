"""Learning rates that schedules, functions and callbacks change."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from engines import assert_same_bits, state
from keras_models import BATCH, SAMPLES, fit, inputs, new_layer, new_model, tables, targets, trained_engine

from anycore import ConfigError

STEPS_OF_AN_EPOCH = -(-SAMPLES // BATCH)


def test_a_schedule_counts_the_updates() -> None:
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([4, 9], [0.5, 0.25, 0.125])
    layer = new_layer(learning_rates={0: schedule})
    model = new_model(layer)
    model.evaluate(inputs(), targets(), verbose=0)
    fit(model)
    rates = [0.5] * 5 + [0.25] * 5 + [0.125] * STEPS_OF_AN_EPOCH
    assert_same_bits(tables(layer), state(trained_engine(rates.__getitem__)))


def test_a_function_is_asked_at_each_update() -> None:
    rates = iter(np.linspace(0.5, 0.1, STEPS_OF_AN_EPOCH))
    layer = new_layer(learning_rates={"people": lambda: next(rates)})
    fit(new_model(layer))
    assert_same_bits(tables(layer), state(trained_engine(np.linspace(0.5, 0.1, STEPS_OF_AN_EPOCH).__getitem__)))


def test_a_callback_assigns_a_rate() -> None:
    layer = new_layer()
    halve = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: layer.learning_rate("people").assign(0.5**epoch)
    )
    fit(new_model(layer), epochs=3, callbacks=[halve])
    engine = trained_engine(lambda step: 0.5 ** (step // STEPS_OF_AN_EPOCH), epochs=3)
    assert_same_bits(tables(layer), state(engine))


def test_a_rate_that_was_constant_can_be_set_too() -> None:
    layer = new_layer()
    layer.learning_rate("movies").assign(0.0)
    before = tables(layer)
    fit(new_model(layer))
    after = tables(layer)
    np.testing.assert_array_equal(before["movies"]["parameters"], after["movies"]["parameters"])
    assert (before["people"]["parameters"] != after["people"]["parameters"]).all()


@pytest.mark.parametrize("key", ["nobody", 9])
def test_a_rate_that_does_not_exist_is_named(key: Any) -> None:
    with pytest.raises(ConfigError, match=f"no learning rate {key!r} to set"):
        new_layer().learning_rate(key)
    with pytest.raises(ConfigError, match=f"learning_rates: there is no {key!r}"):
        new_layer(learning_rates={0: 0.1, key: 0.1})


def test_a_schedule_is_not_set() -> None:
    with pytest.raises(ConfigError, match="of which"):
        new_layer(learning_rates={0: lambda: 0.1}).learning_rate("people")


def test_every_tag_needs_a_rate() -> None:
    with pytest.raises(ConfigError, match="must have the tag 0"):
        new_layer(learning_rates={})
    with pytest.raises(ConfigError, match="a learning rate must be a number"):
        new_layer(learning_rates={0: "fast"})
