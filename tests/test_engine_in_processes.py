"""What is refused on one process, or not answered in time, leaves every process with the same tables."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from engines import small_engine, state
from shared_engines import in_processes, unless_raised

from anycore import CallOrderError, ConfigError, EmbeddingEngine, InputError, TransportError
from anycore.transport import Transport

ONES = [np.ones((2, 2))]


def make(transport: Transport, timeout: float = 10.0, cores: int = 2, **options: Any) -> EmbeddingEngine:
    """One table of four rows [0, 1], [2, 3], …"""
    config = small_engine(num_tensor_cores=cores, **options).config
    engine = EmbeddingEngine(config, transport=transport, timeout=timeout)
    engine.load("t", {"parameters": np.arange(8).reshape(4, 2)})
    return engine


def test_who_gave_up_waiting_sends_nothing_that_the_late_one_would_take_for_gradients() -> None:
    given_up = threading.Event()

    def program(transport: Transport) -> Any:
        engine = make(transport, timeout=1.0)
        before = engine.views("t")["parameters"].copy()
        engine.enqueue([[2, 3]])
        engine.receive_activations()
        if transport.rank:
            assert given_up.wait(10)
        with pytest.raises(TransportError):
            engine.send_gradients(ONES)
        if not transport.rank:
            # As many bytes as the gradients of a row.
            with pytest.raises(TransportError, match="an earlier exchange"):
                engine.retrieve("t")
            given_up.set()
        assert engine.views("t")["parameters"].tolist() == before.tolist()

    unless_raised(in_processes(2, program))


def test_a_refused_reshape_is_refused_on_every_process() -> None:
    def program(transport: Transport) -> Any:
        engine = make(transport, pipeline_execution_with_tensor_core=True)
        engine.enqueue([[0, 1]])
        engine.receive_activations()
        engine.send_gradients(ONES)
        wrong = ConfigError if transport.rank else InputError
        with pytest.raises(wrong, match=None if transport.rank else r"reshape: refused, .* process 1: .*input_shape"):
            engine.reshape([[-1 if transport.rank else 1]])
        engine.reshape([[1]])
        engine.enqueue([[3]])
        shapes = [array.shape for array in engine.receive_activations()]
        with pytest.raises(CallOrderError, match="step 1 is under way"):
            engine.reshape([[2]])
        return shapes

    assert unless_raised(in_processes(2, program)) == [[(1, 2)]] * 2


def test_gradients_refused_for_a_step_that_another_process_gave_up_hold_nobody_up() -> None:
    def program(transport: Transport) -> Any:
        engine = make(transport)
        ids = [[0, 9 if transport.rank else 1]]
        if transport.rank:
            with pytest.raises(InputError, match="got 9"):
                engine.enqueue(ids, mode="backward_pass_only")
        else:
            engine.enqueue(ids, mode="backward_pass_only")
            with pytest.raises(InputError, match=r"ids of step 0.*: refused, .* process 1: "):
                engine.send_gradients([np.ones((3, 2))])
        engine.enqueue([[0, 1]])
        (activations,) = engine.receive_activations()
        engine.send_gradients(ONES)
        return activations.tolist(), state(engine)["t"]["parameters"].tolist()

    for activations, table in unless_raised(in_processes(2, program)):
        assert activations == [[0, 1], [2, 3]]
        assert table == [[-2, -1], [0, 1], [4, 5], [6, 7]]


def test_gradients_refused_before_the_ids_of_all_local_cores_are_there_hold_nobody_up() -> None:
    def program(transport: Transport) -> Any:
        engine = make(transport, cores=4)
        engine.enqueue([[0, 1]], core=0, mode="backward_pass_only")
        if transport.rank:
            with pytest.raises(InputError, match="gradient of 'f'"):
                engine.send_gradients([np.ones((3, 2))], core=0)
        engine.enqueue([[2, 3]], core=1, mode="backward_pass_only")
        for core in range(2):
            engine.send_gradients(ONES, core=core)
        return state(engine)["t"]["parameters"].tolist()

    assert unless_raised(in_processes(2, program)) == [[[-2, -1], [0, 1], [2, 3], [4, 5]]] * 2
