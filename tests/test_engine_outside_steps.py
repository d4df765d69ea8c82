"""Lookups, updates, views and other shapes, outside the engine's steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engines import assert_same_bits, parameters, small_engine, state

from anycore import CallOrderError, ConfigError, EmbeddingConfig, EmbeddingEngine, InputError, Mode, Ragged, TableConfig
from anycore.optimizers import Adagrad


def test_look_up_sees_every_update_and_queues_nothing() -> None:
    engine = small_engine(pipeline_execution_with_tensor_core=True)
    engine.enqueue([[0, 1]])
    engine.receive_activations()
    assert engine.look_up([[0, 3]])[0].tolist() == [[0, 1], [6, 7]]
    engine.send_gradients([np.ones((2, 2))])
    assert engine.look_up({"f": Ragged([0, 2, 2], [0, 3])}, combiners=["mean"])[0].tolist() == [[2.5, 3.5], [0, 0]]
    with pytest.raises(InputError, match=r"feature 'f': embedding_indices\[1\] must be an id"):
        engine.look_up([[0, 4]])
    with pytest.raises(CallOrderError, match="step 1 was never enqueued"):
        engine.receive_activations()


def test_views_are_the_memory_of_a_table() -> None:
    engine = small_engine(Adagrad(learning_rate=1.0))
    views = engine.views("t")
    assert list(views) == ["parameters", "accumulators"]
    views["parameters"][1] = 9
    assert parameters(engine)[1] == [9, 9]
    engine.enqueue([[0, 0]])
    engine.receive_activations()
    engine.send_gradients([np.ones((2, 2))])
    assert views["parameters"].tolist() == parameters(engine)
    with pytest.raises(InputError, match="there is no table 'u'"):
        engine.views("u")


def test_look_up_and_update_are_a_step_outside_all_steps() -> None:
    ours, theirs = small_engine(Adagrad()), small_engine(Adagrad())
    gradient = np.array([[1, 2], [3, 4]], np.float32)
    ours.enqueue([[3, 3]])  # waits meanwhile, and is not disturbed
    for _ in range(3):
        out = [np.empty((2, 2), np.float32)]
        assert ours.look_up([[1, 2]], out=out) is out
        ours.update([[1, 2]], [gradient])
        theirs.enqueue([[1, 2]])
        np.testing.assert_array_equal(theirs.receive_activations()[0], out[0])
        theirs.send_gradients([gradient])
    assert_same_bits(state(ours), state(theirs))
    np.testing.assert_array_equal(ours.receive_activations()[0], theirs.look_up([[3, 3]])[0])


@pytest.mark.parametrize(
    "arguments", [([[1, 4]], [np.ones((2, 2))]), ([[1, 2]], [np.ones((2, 3))]), ([[1, 2]], []), ([[1]], [None], [1.0])]
)
def test_a_refused_update_has_changed_nothing(arguments: Any) -> None:
    engine = small_engine()
    before = parameters(engine)
    with pytest.raises(InputError):
        engine.update(*arguments)
    assert parameters(engine) == before


def test_an_update_follows_one_that_pipelining_holds_back() -> None:
    ours, theirs = (small_engine(Adagrad(), pipeline_execution_with_tensor_core=held) for held in (True, False))
    gradient = [np.ones((2, 2), np.float32)]
    for engine in (ours, theirs):
        engine.enqueue([[1, 2]])
        engine.receive_activations()
        engine.send_gradients(gradient)
        engine.update([[1, 2]], gradient)
    assert_same_bits(state(ours), state(theirs))


def test_inference_cannot_be_updated() -> None:
    engine = small_engine(mode=Mode.INFERENCE)
    with pytest.raises(InputError, match="needs a config that trains"):
        engine.update([[1, 2]], [None])


def test_other_shapes_hold_from_the_next_step_on_and_tables_stay() -> None:
    ours, theirs = small_engine(Adagrad()), small_engine(Adagrad())
    gradient = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    ours.reshape([[3]])
    assert [activation.shape for activation in ours.activations] == [(3, 2)]
    ours.enqueue([[1, 2, 1]])
    np.testing.assert_array_equal(ours.receive_activations()[0], [[2, 3], [4, 5], [2, 3]])
    ours.send_gradients([gradient])
    gradient[0] += gradient[2]
    theirs.update([[1, 2]], [gradient[:2]])
    assert_same_bits(state(ours), state(theirs))
    ours.reshape([[2]])
    np.testing.assert_array_equal(ours.look_up([[1, 2]])[0], theirs.look_up([[1, 2]])[0])


def test_an_update_that_pipelining_holds_back_has_the_old_shapes() -> None:
    ours, theirs = (small_engine(Adagrad(), pipeline_execution_with_tensor_core=held) for held in (True, False))
    for engine in (ours, theirs):
        engine.enqueue([[1, 2]])
        engine.receive_activations()
        engine.send_gradients([np.ones((2, 2))])
        engine.reshape([[1]])
    assert_same_bits(state(ours), state(theirs))


def test_shapes_do_not_change_while_a_step_is_under_way() -> None:
    engine = small_engine()
    engine.enqueue([[1, 2]])
    with pytest.raises(CallOrderError, match="reshape"):
        engine.reshape([[3]])
    engine.receive_activations()
    engine.send_gradients([None])
    engine.reshape([[3]])


def test_a_refused_reshape_applies_no_update_that_pipelining_holds_back() -> None:
    engine = small_engine(num_tensor_cores=2, pipeline_execution_with_tensor_core=True)
    for core in range(2):
        engine.enqueue([[0, 1]], core=core)
    for core in range(2):
        engine.receive_activations(core)
        engine.send_gradients([np.ones((2, 2))], core=core)
        engine.enqueue([[0, 1]], core=core)
    (first,) = engine.receive_activations(0)
    with pytest.raises(CallOrderError, match="step 1 is under way"):
        engine.reshape([[3]])
    np.testing.assert_array_equal(engine.receive_activations(1)[0], first)


@pytest.mark.parametrize("shapes", [[], [[0]], [[2], [2]]])
def test_shapes_that_no_config_has_are_refused(shapes: Any) -> None:
    engine = small_engine()
    with pytest.raises(ConfigError, match="input_shape"):
        engine.reshape(shapes)
    np.testing.assert_array_equal(engine.look_up([[1, 2]])[0], [[2, 3], [4, 5]])


def test_a_config_without_features_has_no_shapes_to_change() -> None:
    table = TableConfig("t", 4, 2, Adagrad(), num_features=1)
    engine = EmbeddingEngine(EmbeddingConfig([table], batch_size_per_tensor_core=2))
    with pytest.raises(ConfigError, match="expected 0 input_shapes"):
        engine.reshape([[3]])
