"""A call that the engine refuses says why, has changed nothing, and may be repeated."""

from __future__ import annotations

import signal
from typing import Any

import numpy as np
import pytest
from engines import assert_same_bits, parameters, small_engine, state

from anycore import CallOrderError, ConfigError, EmbeddingEngine, InputError
from anycore.optimizers import DynamicInput, StochasticGradientDescent


@pytest.mark.parametrize(
    ("gradients", "rates", "message"),
    [
        ([], [], r"expected 1 gradients, as many as activations, got 0"),
        ([np.zeros((2, 3))], [], r"gradient of 'f' must have the shape of its activations, \[2, 2\], got \[2, 3\]"),
        ([np.zeros((2, 2), complex)], [], r"gradient of 'f' must be real numbers, got complex128"),
        ([np.zeros((2, 2))], [0.1], r"expected 0 learning_rates, .* got 1"),
    ],
)
def test_a_refused_send_changes_nothing_and_may_be_repeated(gradients: Any, rates: Any, message: str) -> None:
    engine = small_engine()
    engine.enqueue([[0, 1]])
    engine.receive_activations()
    before = state(engine)
    with pytest.raises(InputError, match=message):
        engine.send_gradients(gradients, rates)
    assert_same_bits(before, state(engine))
    engine.send_gradients([np.ones((2, 2))])
    assert parameters(engine)[0] == [-1, 0]


@pytest.mark.parametrize("rate", [np.nan, np.inf, [0.1], "fast"])
def test_a_rate_that_is_no_finite_scalar_is_refused(rate: Any) -> None:
    engine = small_engine(StochasticGradientDescent(learning_rate=DynamicInput(0)))
    engine.enqueue([[0]])
    engine.receive_activations()
    with pytest.raises(InputError, match=r"learning_rates\[0\]"):
        engine.send_gradients([np.ones((2, 2))], [rate])
    engine.send_gradients([np.ones((2, 2))], [1.0])
    assert parameters(engine)[0] == [-1, 0]


def test_cores_must_send_the_same_rates() -> None:
    engine = small_engine(StochasticGradientDescent(learning_rate=DynamicInput(0)), num_tensor_cores=2)
    for core in (0, 1):
        engine.enqueue([[0]], core=core)
        engine.receive_activations(core)
    engine.send_gradients([np.ones((2, 2))], [0.5], core=0)
    with pytest.raises(
        InputError, match=r"learning_rates must equal those of the other cores, \(0.5,\), got \(0.25,\)"
    ):
        engine.send_gradients([np.ones((2, 2))], [0.25], core=1)
    engine.send_gradients([np.ones((2, 2))], [0.5], core=1)
    assert parameters(engine)[0] == [-1, 0]


def test_a_refused_enqueue_queues_nothing() -> None:
    engine = small_engine()
    with pytest.raises(InputError, match=r"feature 'f': embedding_indices\[1\] must be an id in \[0, 4\) .* got 4"):
        engine.enqueue([[0, 4]])
    with pytest.raises(CallOrderError, match="step 1 was never enqueued"):
        engine.receive_activations()


def test_a_refused_enqueue_gives_up_its_step_on_all_cores() -> None:
    engine = small_engine(num_tensor_cores=2)
    engine.enqueue([[1, 1]], core=0)
    with pytest.raises(InputError, match="got 9"):
        engine.enqueue([[0, 9]], core=1)
    engine.enqueue([[0, 0]], core=0)
    engine.enqueue([[2, 2]], core=1)
    for core in (0, 1):
        engine.receive_activations(core)
        engine.send_gradients([np.ones((2, 2))], core=core)
    assert [row[0] for row in parameters(engine)] == [-2, 2, 2, 6]


def test_an_interrupted_enqueue_is_queued_and_gives_up_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = small_engine(num_tensor_cores=2)
    enqueue = engine._schedule.enqueue

    def interrupted(*arguments: Any) -> Any:
        step = enqueue(*arguments)
        signal.raise_signal(signal.SIGINT)
        return step

    monkeypatch.setattr(engine._schedule, "enqueue", interrupted)
    with pytest.raises(KeyboardInterrupt):
        engine.enqueue([[1, 1]], core=0)
    monkeypatch.undo()
    engine.enqueue([[2, 2]], core=1)
    assert [engine.receive_activations(core)[0].tolist() for core in (0, 1)] == [[[2, 3]] * 2, [[4, 5]] * 2]


@pytest.mark.parametrize("call", ["enqueue", "receive_activations", "send_gradients"])
@pytest.mark.parametrize("core", [-1, 1])
def test_a_core_that_does_not_exist_is_named(call: str, core: int) -> None:
    arguments: Any = {"enqueue": [[[0]]], "receive_activations": [], "send_gradients": [[None]]}[call]
    with pytest.raises(InputError, match=rf"{call}: core must be in \[0, 1\), got {core}"):
        getattr(small_engine(), call)(*arguments, core=core)


def test_an_unknown_mode_is_named() -> None:
    with pytest.raises(InputError, match="Unsupported value 'eval' specified for mode_override"):
        small_engine().enqueue([[0]], mode="eval")


def test_a_bad_number_of_threads_is_named() -> None:
    with pytest.raises(ConfigError, match="num_threads must be an integer and at least 1, got 0"):
        EmbeddingEngine(small_engine().config, num_threads=0)
