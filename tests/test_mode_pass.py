"""Names of calls in functions: what trains is what gradients are sent for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_embeddings import one_feature, parameters

from anycore.tensorflow.embedding import TPUEmbedding

function: Callable[[Any], Any] = tf.function
function_without_inputs: Callable[[Any], Any] = tf.function(input_signature=[])

IDS = tf.constant([3, 5])
GRADIENT = tf.ones([2, 2])


@pytest.fixture
def tables() -> TPUEmbedding:
    tables = one_feature()
    tables.build(2)
    return tables


def look_up(tables: TPUEmbedding, name: str | None = "step", **options: Any) -> Any:
    tables.enqueue(IDS, name=name, **options)
    return tables.dequeue(name=name)


def steps_of(tables: TPUEmbedding, *calls: Any) -> list[int]:
    """Makes calls and returns how often row 3 has been trained after each."""
    counts = []
    for call in calls:
        call()
        counts.append(round((6 - float(parameters(tables)["video"][3, 0])) / 0.1))
    return counts


def test_a_function_without_gradients_evaluates_and_one_with_them_trains(tables: TPUEmbedding) -> None:
    @function
    def train() -> None:
        look_up(tables, training=False)
        tables.apply_gradients(GRADIENT, name="step")

    @function
    def evaluate() -> Any:
        return look_up(tables, training=True)

    assert steps_of(tables, evaluate, evaluate, train, evaluate, train, train, evaluate) == [0, 0, 1, 1, 2, 3, 3]
    np.testing.assert_allclose(evaluate()[0, 0], 5.7, rtol=1e-6)
    assert train.experimental_get_tracing_count() == evaluate.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("training", [True, False, tf.constant(True), tf.constant(False)])
def test_without_a_name_training_decides(tables: TPUEmbedding, training: Any) -> None:
    trains = bool(training)

    @function
    def step() -> None:
        look_up(tables, name=None, training=training)
        if trains:
            tables.apply_gradients(GRADIENT)

    assert steps_of(tables, step, step) == ([1, 2] if trains else [0, 0])


def test_gradients_of_another_name_do_not_count(tables: TPUEmbedding) -> None:
    @function
    def step() -> None:
        look_up(tables, "evaluation")
        look_up(tables, "training")
        tables.apply_gradients(GRADIENT, name="training")

    assert steps_of(tables, step, step) == [1, 2]


def test_in_eager_mode_a_name_means_nothing(tables: TPUEmbedding) -> None:
    look_up(tables)
    assert steps_of(tables, lambda: tables.apply_gradients(GRADIENT, name="another")) == [1]
    look_up(tables, training=False)
    with pytest.raises(tf.errors.FailedPreconditionError, match="no training step waits for gradients"):
        tables.apply_gradients(GRADIENT, name="step")


def test_gradients_may_be_applied_in_a_nested_function(tables: TPUEmbedding) -> None:
    @function
    def apply() -> None:
        tables.apply_gradients(GRADIENT, name="step")

    @function
    def train() -> None:
        look_up(tables)
        apply()

    assert steps_of(tables, train, train) == [1, 2]


def test_gradients_may_be_applied_in_control_flow(tables: TPUEmbedding) -> None:
    @function
    def in_a_branch(apply: Any) -> None:
        look_up(tables)
        tf.cond(apply, lambda: tables.apply_gradients(GRADIENT, name="step"), lambda: None)

    @function
    def whole_steps_in_a_branch(apply: Any) -> None:
        def train() -> None:
            look_up(tables)
            tables.apply_gradients(GRADIENT, name="step")

        tf.cond(apply, train, lambda: None)

    @function
    def in_a_loop() -> None:
        for _ in tf.range(2):
            look_up(tables)
            tables.apply_gradients(GRADIENT, name="step")

    yes, no = tf.constant(True), tf.constant(False)
    calls = [lambda: in_a_branch(yes), lambda: whole_steps_in_a_branch(yes), lambda: whole_steps_in_a_branch(no)]
    assert steps_of(tables, *calls, in_a_loop) == [1, 2, 2, 4]


def test_one_of_two_branches_that_enqueue_under_one_name_is_taken(tables: TPUEmbedding) -> None:
    @function
    def train(first: Any) -> None:
        tf.cond(first, lambda: tables.enqueue(IDS, name="step"), lambda: tables.enqueue(IDS, name="step"))
        tables.dequeue(name="step")
        tables.apply_gradients(GRADIENT, name="step")

    assert steps_of(tables, *[lambda: train(tf.constant(True)), lambda: train(tf.constant(False))]) == [1, 2]


def test_a_nested_function_does_what_the_outermost_one_needs(tables: TPUEmbedding) -> None:
    """The nested one is traced once, and called from both, from branches, and for itself."""

    @function
    def nested() -> Any:
        return look_up(tables)

    @function
    def middle() -> Any:
        return nested()

    @function
    def train() -> None:
        middle()
        tables.apply_gradients(GRADIENT, name="step")

    @function
    def evaluate() -> None:
        middle()

    @function
    def train_in_a_branch(taken: Any) -> None:
        def step() -> None:
            middle()
            tables.apply_gradients(GRADIENT, name="step")

        tf.cond(taken, step, lambda: None)

    calls = [train, evaluate, nested, train, evaluate, lambda: train_in_a_branch(tf.constant(True)), nested]
    assert steps_of(tables, *calls) == [1, 1, 1, 2, 2, 3, 3]
    assert nested.experimental_get_tracing_count() == 1


def test_a_training_function_in_another_still_trains(tables: TPUEmbedding) -> None:
    @function
    def train() -> None:
        look_up(tables)
        tables.apply_gradients(GRADIENT, name="step")

    @function
    def epoch() -> None:
        for _ in range(2):
            train()

    @function
    def evaluate() -> None:
        look_up(tables)

    assert steps_of(tables, train, evaluate) == [1, 1]
    with pytest.raises(ValueError, match=r"Found second enqueue op for call 'step' on core 0"):
        epoch()
    assert steps_of(tables, train, evaluate) == [2, 2]


def test_each_trace_is_judged_for_itself(tables: TPUEmbedding) -> None:
    @function
    def step(train: bool) -> None:
        look_up(tables)
        if train:
            tables.apply_gradients(GRADIENT, name="step")

    calls = [lambda: step(True), lambda: step(False), lambda: step(False), lambda: step(True)]
    assert steps_of(tables, *calls) == [1, 1, 1, 2]


def test_a_step_may_be_differentiated(tables: TPUEmbedding) -> None:
    """Functions called under a tape have a forward and a backward part."""
    weight = tf.Variable(1.0)

    @function
    def nested() -> Any:
        return weight * look_up(tables)

    @function
    def train() -> Any:
        with tf.GradientTape() as tape:
            weighted = nested()
            loss = tf.reduce_sum(weighted)
        tables.apply_gradients(tf.clip_by_value(weighted, 1, 1), name="step")
        return tape.gradient(loss, weight)

    assert steps_of(tables, train, train) == [1, 2]
    np.testing.assert_allclose(train(), 5.8 + 6.8 + 9.8 + 10.8, rtol=1e-6)

    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(nested())
    assert tape.gradient(loss, weight) is not None


@pytest.mark.parametrize("training", [True, False, tf.constant(True)])
def test_a_function_can_be_saved_and_then_training_decides(tables: TPUEmbedding, training: Any, tmp_path: Path) -> None:
    class Module(tf.Module):
        @function_without_inputs
        def nested(self) -> Any:
            return look_up(tables, training=training)

        @function_without_inputs
        def evaluate(self) -> Any:
            return tf.cond(tf.constant(True), lambda: self.nested(), lambda: tf.zeros([2, 2]))

    module = Module()
    module.evaluate()
    tf.saved_model.save(module, tmp_path)
    loaded = tf.saved_model.load(tmp_path)
    for look_up_loaded in (loaded.nested, loaded.evaluate):
        assert look_up_loaded()[1, 1] == 11
        if training is not False:
            tables.apply_gradients(tf.zeros([2, 2]))
    assert module.evaluate()[1, 1] == 11


def test_a_second_enqueue_of_one_name_is_refused(tables: TPUEmbedding) -> None:
    @function
    def train_and_evaluate() -> None:
        look_up(tables)
        tables.apply_gradients(GRADIENT, name="step")
        look_up(tables)

    for _ in range(2):
        with pytest.raises(ValueError, match=r"Found second enqueue op for call 'step' on core 0.* another name"):
            train_and_evaluate()
    look_up(tables, training=False)


def test_the_operations_say_their_call(tables: TPUEmbedding) -> None:
    @function
    def train() -> None:
        look_up(tables)
        tables.apply_gradients(GRADIENT, name="step")
        tables.enqueue(IDS)

    nodes = train.get_concrete_function().graph.as_graph_def().node
    marked = {node.op: node.attr["_tpu_embedding_layer"].s for node in nodes if "_tpu_embedding_layer" in node.attr}
    assert marked == dict.fromkeys(
        (
            "EnqueueTPUEmbeddingArbitraryTensorBatch",
            "RecvTPUEmbeddingActivations",
            "SendTPUEmbeddingGradients",
        ),
        b"step",
    )


def test_replicas_train_and_evaluate_by_name() -> None:
    program = Path(__file__).with_name("tensorflow_mode_pass.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, str(program)], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
