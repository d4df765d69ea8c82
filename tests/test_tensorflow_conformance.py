"""TensorFlow's own tests of training TPU embeddings, here: through the class and through the operations."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_embeddings import ACTIVATIONS, embedding
from tensorflow_interfaces import ByFeature, OfClass, initial_variables
from tensorflow_recipes import (
    LENGTHS,
    MORE,
    OPTIMIZERS,
    PLAIN,
    Expected,
    as_written,
    assert_close,
    assert_variables_close,
    each_interface,
    each_mode,
    look_up,
    recipe,
    train_step,
)

each_optimizer = pytest.mark.parametrize("optimizer", OPTIMIZERS)
each_kind = pytest.mark.parametrize("kind", PLAIN)


def assert_trains_as_expected(recipe: Any, optimizer: Any, interface: Any, mode: Any) -> None:
    features = recipe.features(optimizer)
    tables, expected = interface(features, recipe.shapes), Expected(features, recipe.shapes)
    step, inputs = mode(lambda inputs: train_step(tables, inputs)), recipe.inputs()
    for _ in range(3):
        assert_close(step(inputs), expected.train_step(recipe.rows))
        assert_variables_close(tables.variables(), expected.variables())


@each_mode
@pytest.mark.parametrize("interface", [OfClass, ByFeature])
@each_optimizer
@each_kind
def test_every_optimizer_trains(kind: str, optimizer: str, interface: Any, mode: Any) -> None:
    assert_trains_as_expected(PLAIN[kind], OPTIMIZERS[optimizer](), interface, mode)


@each_mode
@each_interface
@pytest.mark.parametrize("name", PLAIN | MORE)
def test_every_kind_of_input_trains(name: str, interface: Any, mode: Any) -> None:
    assert_trains_as_expected((PLAIN | MORE)[name], embedding.Adagrad(0.1), interface, mode)


@pytest.mark.parametrize("interface", [OfClass, ByFeature])
@pytest.mark.parametrize(
    "options",
    [
        {"clip_weight_min": 3.0, "clip_weight_max": 6.5},
        {"clipvalue": 4.0},
        {"clipvalue": (None, 5.0)},
        {"weight_decay_factor": 0.25},
        {"weight_decay_factor": 0.25, "multiply_weight_decay_factor_by_learning_rate": True},
        {"use_gradient_accumulation": False},
    ],
    ids=lambda options: " ".join(options),
)
def test_every_option_of_optimizers_trains(options: dict[str, Any], interface: Any) -> None:
    assert_trains_as_expected(PLAIN["sparse"], embedding.Adagrad(0.1, **options), interface, as_written)


OTHER_OPTIMIZERS: dict[str, Any] = {
    "adam": embedding.Adam(0.1, beta_1=0.5, beta_2=0.75, epsilon=0.5),
    "epsilon outside": embedding.Adam(0.1, epsilon=0.5, sum_inside_sqrt=False),
    "adam of all rows": embedding.Adam(0.1, lazy_adam=False),
    "adagrad": embedding.Adagrad(0.1, initial_accumulator_value=3.0),
    "momentum": embedding.AdagradMomentum(0.1, momentum=0.5),
    "ftrl": embedding.FTRL(
        0.1, learning_rate_power=-0.25, l1_regularization_strength=3.0, l2_regularization_strength=0.5, beta=0.75
    ),
    "ftrl of rates": embedding.FTRL(0.1, l1_regularization_strength=20.0, multiply_linear_by_learning_rate=True),
}


@pytest.mark.parametrize("interface", [OfClass, ByFeature])
@pytest.mark.parametrize("optimizer", OTHER_OPTIMIZERS.values(), ids=OTHER_OPTIMIZERS)
def test_every_setting_of_optimizers_trains(optimizer: Any, interface: Any) -> None:
    recipe = PLAIN["ragged"]
    features = recipe.features(optimizer)
    tables, expected = interface(features, recipe.shapes), Expected(features, recipe.shapes)
    # Rows that one step looks up and the next does not.
    for watched in ([[0], [1, 2]], [[3], [2, 2]], [[7], [0]]):
        step = replace(recipe, rows={"watched": watched, "favorited": [[1], []], "friends": watched[::-1]})
        assert_close(train_step(tables, step.inputs()), expected.train_step(step.rows))
    assert_variables_close(tables.variables(), expected.variables())


@each_mode
@each_interface
@pytest.mark.parametrize("kind", ["sparse", "ragged"])
def test_activations_are_the_published_ones(kind: str, interface: Any, mode: Any) -> None:
    recipe = PLAIN[kind]
    tables = interface(recipe.features(embedding.SGD(0.1)), recipe.shapes)
    activations = mode(lambda inputs: look_up(tables, inputs))(recipe.inputs())
    for name, values in ACTIVATIONS.items():
        np.testing.assert_array_equal(activations[name], values)


@each_interface
@each_optimizer
def test_looking_up_changes_nothing(optimizer: str, interface: Any) -> None:
    recipe = PLAIN["sparse"]
    features = recipe.features(OPTIMIZERS[optimizer]())
    tables, inputs = interface(features, recipe.shapes), recipe.inputs()
    for _ in range(2):
        look_up(tables, inputs)
    for table in tables.tables:
        for name, values in initial_variables(table).items():
            np.testing.assert_array_equal(tables.variables()[table.name][name], values)


# What the published tests expect after a step of gradients of one, with SGD at the rate 0.1.


def step_of_ones(tables: Any, inputs: Any, stopped: dict[str, Any]) -> Any:
    """Sends ones for all features but those that are stopped, and returns the activations before."""
    tables.enqueue(inputs)
    activations = tables.dequeue()
    tables.apply_gradients({name: tf.ones_like(each) for name, each in activations.items()} | stopped)
    return activations


UPDATES = {
    "watched": np.array([[0.3], [0.6]]),
    "favorited": np.array([[0.6], [0.3]]),
    "friends": np.array([[0.1], [0.1 / 3]]),
}
PADDED = {
    "watched": np.array([[[0.3], [0]], [[0.3], [0.3]]]),
    "favorited": np.array([[[0.3], [0.3]], [[0.3], [0]]]),
    "friends": np.array([[[0.1], [0], [0]], [[0.1], [0.1], [0.1]]]),
}


@each_mode
@each_interface
@pytest.mark.parametrize("kind", ["sparse", "ragged"])
@pytest.mark.parametrize("lengths", [{}, LENGTHS], ids=["combined", "sequences"])
def test_training_and_looking_up_take_turns(lengths: Any, kind: str, interface: Any, mode: Any) -> None:
    recipe_ = recipe(kind, [2], lengths)
    tables = interface(recipe_.features(embedding.SGD(0.1)), recipe_.shapes)
    inputs = recipe_.inputs()
    train, look = mode(lambda: step_of_ones(tables, inputs, {})), mode(lambda: look_up(tables, inputs))
    for _ in range(2):
        before, after = train(), look()
        assert_close(look(), after)
        for name, update in (PADDED if lengths else UPDATES).items():
            np.testing.assert_allclose(after[name], before[name] - update, rtol=1e-5, atol=1e-6)


@each_mode
@each_interface
def test_a_feature_without_gradients_stays_as_it_is(interface: Any, mode: Any) -> None:
    recipe = PLAIN["sparse"]
    tables = interface(recipe.features(embedding.SGD(0.1)), recipe.shapes)
    stopped = dict.fromkeys(("watched", "favorited"), None if interface is OfClass else tf.zeros([2, 4]))
    inputs = recipe.inputs()
    before = mode(lambda: step_of_ones(tables, inputs, stopped))()
    after = look_up(tables, inputs)
    for name in stopped:
        np.testing.assert_array_equal(after[name], before[name])
    np.testing.assert_allclose(after["friends"], before["friends"] - UPDATES["friends"], rtol=1e-6)


@pytest.mark.parametrize("mode", [as_written, tf.function], ids=["eager", "function"])
@each_interface
def test_a_learning_rate_may_change_with_every_step(interface: Any, mode: Any) -> None:
    steps = 10
    count = tf.Variable(0.0)

    def rate() -> tf.Tensor:
        return tf.maximum(0.5, 1.0 - 0.5 * count / steps)

    table = embedding.TableConfig(1, 4, tf.zeros_initializer(), embedding.SGD(rate), combiner="sum", name="table")
    tables = interface({"feature": embedding.FeatureConfig(table, name="feature")}, {"feature": [1]})

    def step(inputs: Any) -> Any:
        tables.enqueue(inputs)
        with tf.GradientTape() as tape:
            activations = tables.dequeue()
            tape.watch(activations)
            loss = tf.reduce_sum(activations["feature"])
        tables.apply_gradients(tape.gradient(loss, activations))
        return activations["feature"]

    run, found = mode(step), []
    for _ in range(steps):
        found.append(run({"feature": tf.constant([[0]], tf.int32)})[0].numpy())
        count.assign_add(1)
    sums = np.cumsum([0, *(1 - 0.05 * np.arange(steps - 1))])
    np.testing.assert_allclose(found, -np.repeat(sums[:, None], 4, axis=1), rtol=1e-6)


@each_mode
@each_interface
def test_tables_may_have_optimizers_of_their_own(interface: Any, mode: Any) -> None:
    recipe = PLAIN["sparse"]
    features = recipe.features(None)
    rates = [lambda: tf.constant(0.25), lambda: tf.constant(0.5)]
    features["watched"].table.optimizer = embedding.Adam(rates[0])
    features["friends"].table.optimizer = embedding.FTRL(rates[1], l1_regularization_strength=0.5)
    tables, expected = interface(features, recipe.shapes), Expected(features, recipe.shapes)
    step = mode(lambda inputs: train_step(tables, inputs))
    for _ in range(2):
        assert_close(step(recipe.inputs()), expected.train_step(recipe.rows, rates=[0.25, 0.5]))
    assert_variables_close(tables.variables(), expected.variables())


def test_slots_may_be_variables_of_the_callers() -> None:
    made = {}

    def make_slots(table: Any, names: list[str], initializers: list[Any]) -> dict[str, tf.Variable]:
        slots = {
            name: tf.Variable(
                partial(tf.zeros_initializer(), table.shape, tf.float32), trainable=False, name=f"{table.name}_{name}"
            )
            for name in names
        }
        made[table.shape[0]] = slots
        return slots

    recipe = PLAIN["sparse"]
    optimizer = embedding.Adagrad(0.1, initial_accumulator_value=0.5, slot_variable_creation_fn=make_slots)
    features = recipe.features(optimizer)
    tables = OfClass(features, recipe.shapes)
    tables.embedding.build(2)
    assert {rows: [*slots] for rows, slots in made.items()} == {8: ["accumulators"], 16: ["accumulators"]}
    for variables in tables.variables().values():
        assert not variables["accumulators"].any()

    expected = Expected(features, recipe.shapes)
    for name, values in expected.variables().items():
        expected.engine.load(name, {"accumulators": np.zeros_like(values["accumulators"])})
    for _ in range(2):
        # Adagrad without a starting value divides by zero where a gradient is zero.
        gradients = {name: tf.ones(np.shape(values)) for name, values in ACTIVATIONS.items()}
        tables.enqueue(recipe.inputs())
        tables.dequeue()
        tables.apply_gradients(gradients)
        expected.train_step(recipe.rows, gradients=gradients)
    assert_variables_close(tables.variables(), expected.variables())


def test_two_replicas_train_as_one_of_the_double_batch() -> None:
    program = Path(__file__).with_name("tensorflow_two_replicas.py")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
