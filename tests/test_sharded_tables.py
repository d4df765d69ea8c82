"""Tables that several processes share: the bits of one engine, and calls that all of them do or none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from engines import assert_same_bits, small_engine, state
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shared_engines import OfProcess, in_processes, unless_raised
from shared_story import bags, config_of, gradients, story
from strategies import Outcome, Scenario, replay, scenarios, wrapper

from anycore import (
    CallOrderError,
    ConfigError,
    EmbeddingConfig,
    EmbeddingEngine,
    InputError,
    Ragged,
    ShardingStrategy,
    Sparse,
)
from anycore.errors import CallTimeoutError
from anycore.optimizers import Adagrad, DynamicInput, RowWiseAdagrad, StochasticGradientDescent
from anycore.proto import TPUEmbeddingConfiguration
from anycore.transport import Transport

WRAP = wrapper(Sparse, Ragged)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios(TPUEmbeddingConfiguration), st.integers(1, 4))
def test_any_number_of_processes_gives_the_bits_of_one(scenario: Scenario, most: int) -> None:
    config = EmbeddingConfig.from_proto(scenario.config)
    # A process receives when all its cores have enqueued.
    scenario = replace(scenario, steps=[replace(step, core_by_core=False) for step in scenario.steps])
    expected = replay(scenario, EmbeddingEngine(config, num_threads=1), WRAP)

    def program(transport: Transport) -> tuple[OfProcess, Outcome]:
        process = OfProcess(config, transport, num_threads=1 + transport.rank % 2)
        return process, replay(scenario, process, WRAP)

    for process, found in unless_raised(in_processes(min(most, config.num_tensor_cores), program)):
        for ours, theirs in zip(found.activations, expected.activations, strict=True):
            for core in process.cores:
                for a, b in zip(ours[core], theirs[core], strict=True):
                    np.testing.assert_array_equal(a.view(np.uint32), b.view(np.uint32))
        for tables, expected_tables in zip(found.tables, expected.tables, strict=True):
            assert_same_bits(tables, expected_tables)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("pipelined", [False, True])
@pytest.mark.parametrize("strategy", ShardingStrategy)
def test_all_modes_shapes_and_shards_give_the_bits_of_one(
    size: int, pipelined: bool, strategy: ShardingStrategy
) -> None:
    config = config_of(3, pipeline_execution_with_tensor_core=pipelined, sharding_strategy=strategy)
    expected = story(EmbeddingEngine(config, num_threads=1), range(3))

    def program(transport: Transport) -> tuple[range, Any]:
        process = OfProcess(config, transport, num_threads=1)
        return process.cores, story(process, range(3))

    for cores, found in unless_raised(in_processes(size, program)):
        others = tuple(f"core {core}" for core in set(range(3)) - set(cores))
        wanted = [(what, array) for what, array in expected if not what.endswith(others)]
        assert [what for what, _ in found] == [what for what, _ in wanted]
        for (what, ours), (_, theirs) in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(ours.view(np.uint32), theirs.view(np.uint32), what)


@pytest.mark.parametrize("strategy", ShardingStrategy)
def test_look_up_and_update_are_a_step_with_a_core_for_each_process(strategy: ShardingStrategy) -> None:
    config = config_of(3, sharding_strategy=strategy)
    one = EmbeddingEngine(config)
    expected: list[list[Any]] = []
    for turn in range(3):
        for core in range(3):
            one.enqueue(bags(4, turn, core), core=core)
        expected.append([one.receive_activations(core) for core in range(3)])
        for core in range(3):
            one.send_gradients(gradients(4, turn, core), [0.1], core)

    def program(transport: Transport) -> Any:
        engine = EmbeddingEngine(config, transport=transport, timeout=30)
        for turn in range(3):
            batch = bags(4, turn, transport.rank)
            for ours, theirs in zip(engine.look_up(batch), expected[turn][transport.rank], strict=True):
                np.testing.assert_array_equal(ours.view(np.uint32), theirs.view(np.uint32))
            engine.update(batch, gradients(4, turn, transport.rank), [0.1])
        return state(engine)

    for tables in unless_raised(in_processes(3, program)):
        assert_same_bits(tables, state(one))


def engines(transport: Transport, optimizer: Any = None, **options: Any) -> EmbeddingEngine:
    """One table of four rows [0, 1], [2, 3], … and a core a process."""
    options.setdefault("num_tensor_cores", transport.size)
    config = small_engine(optimizer, **options).config
    engine = EmbeddingEngine(config, transport=transport, timeout=10)
    engine.load("t", {"parameters": np.arange(8).reshape(4, 2)})
    return engine


def step(engine: EmbeddingEngine, ids: list[int], gradient: float = 1.0) -> Any:
    engine.enqueue([ids])
    (activations,) = engine.receive_activations()
    engine.send_gradients([np.full((2, 2), gradient)])
    return activations


def test_a_refused_batch_is_refused_on_every_process_and_training_goes_on() -> None:
    def program(transport: Transport) -> Any:
        engine = engines(transport)
        step(engine, [0, 1])
        before, errors = state(engine), []
        try:
            engine.enqueue([[2, 9 if transport.rank == 1 else 3]])
            engine.receive_activations()
        except InputError as error:
            errors.append(str(error))
        assert_same_bits(before, state(engine))
        return errors, step(engine, [2, 3]).tolist(), state(engine)

    results = unless_raised(in_processes(3, program))
    for rank, (errors, activations, tables) in enumerate(results):
        (error,) = errors
        assert ("process 1: feature 'f': embedding_indices[1]" in error) == (rank != 1), error
        assert activations == [[4, 5], [6, 7]]
        assert tables["t"]["parameters"].tolist() == [[-3, -2], [-1, 0], [1, 2], [3, 4]]


def test_refused_gradients_are_refused_on_every_process_and_may_be_sent_again() -> None:
    def program(transport: Transport) -> Any:
        engine = engines(transport)
        engine.enqueue([[0, 1]])
        engine.receive_activations()
        with pytest.raises(InputError, match=r"must have the shape" if transport.rank else r"process 1: gradient of"):
            engine.send_gradients([np.ones((2, 2 + transport.rank))])
        before = engine.retrieve("t")["parameters"].tolist()
        engine.send_gradients([np.ones((2, 2))])
        return before, engine.retrieve("t")["parameters"].tolist()

    for before, after in unless_raised(in_processes(2, program)):
        assert before == [[0, 1], [2, 3], [4, 5], [6, 7]]
        assert after == [[-2, -1], [0, 1], [4, 5], [6, 7]]


@pytest.mark.parametrize("call", ["retrieve", "load", "look_up", "update"])
def test_a_refused_call_is_refused_on_every_process(call: str) -> None:
    wrong: Any = {
        "retrieve": ["u"],
        "load": ["t", {"parameters": np.ones((3, 2))}],
        "look_up": [[[0, 9]]],
        "update": [[[0, 1]], [np.ones(3)]],
    }
    right: Any = {
        "retrieve": ["t"],
        "load": ["t", {"parameters": np.ones((4, 2))}],
        "look_up": [[[0, 1]]],
        "update": [[[0, 1]], [np.ones((2, 2))]],
    }

    def program(transport: Transport) -> Any:
        engine = engines(transport)
        before = state(engine)
        with pytest.raises(InputError, match=None if transport.rank else "process 1: "):
            getattr(engine, call)(*(wrong if transport.rank else right)[call])
        assert_same_bits(before, state(engine))
        getattr(engine, call)(*right[call])

    unless_raised(in_processes(2, program))


def test_calls_outside_of_steps_reach_all_rows() -> None:
    def program(transport: Transport) -> Any:
        engine = engines(transport)
        rows = engine.look_up([[3, transport.rank]])[0].tolist()
        engine.update([[3, transport.rank]], [np.ones((2, 2))])
        return rows, engine.retrieve("t")["parameters"].tolist()

    for rank, (rows, table) in enumerate(unless_raised(in_processes(2, program))):
        assert rows == [[6, 7], [2 * rank, 2 * rank + 1]]
        assert table == [[-1, 0], [1, 2], [4, 5], [4, 5]]


def test_different_calls_are_told_apart() -> None:
    def program(transport: Transport) -> Any:
        engine = engines(transport)
        engine.enqueue([[0, 1]])
        call = engine.receive_activations if transport.rank else lambda: engine.retrieve("t")
        with pytest.raises(CallOrderError, match=r"process 0: retrieve; process 1: activations of step 0"):
            call()
        engine.receive_activations()
        engine.send_gradients([np.ones((2, 2))])
        return engine.retrieve("t")["parameters"].tolist()

    for table in unless_raised(in_processes(2, program)):
        assert table == [[-2, -1], [0, 1], [4, 5], [6, 7]]


def test_stats_and_loads_of_other_tables_are_calls_like_any() -> None:
    def program(transport: Transport) -> None:
        engine = engines(transport)
        with pytest.raises(CallOrderError, match="process 0: stats; process 1: retrieve"):
            (engine.stats if transport.rank == 0 else lambda: engine.retrieve("t"))()
        rows = {"parameters": np.ones((4, 2))}
        with pytest.raises(CallOrderError, match="process 0: load, tables: 2; process 1: load, tables: 1"):
            engine.load_tables({"t": rows} if transport.rank else {"t": rows, 0: rows})
        assert state(engine)["t"]["parameters"].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]

    unless_raised(in_processes(2, program))


def test_who_is_interrupted_in_a_check_raises_that_and_the_others_learn_of_it() -> None:
    def program(transport: Transport) -> None:
        tables = engines(transport)._tables

        def check() -> None:
            with tables.agreed("call"):
                if transport.rank:
                    raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt if transport.rank else InputError):
            check()

    unless_raised(in_processes(2, program))


def test_all_cores_of_a_process_enqueue_before_one_receives() -> None:
    def program(transport: Transport) -> Any:
        engine = EmbeddingEngine(small_engine(num_tensor_cores=4).config, transport=transport, timeout=0.5)
        engine.enqueue([[0, 1]], core=0)
        with pytest.raises(CallTimeoutError, match=r"step 0 needs the ids of all cores; call enqueue\(core=1\) first"):
            engine.receive_activations(0)
        engine.enqueue([[2, 3]], core=1)
        return [engine.receive_activations(core)[0].shape for core in range(2)]

    assert unless_raised(in_processes(2, program)) == [[(2, 2)] * 2] * 2


def test_activations_whose_receive_could_not_update_are_received_again() -> None:
    def program(transport: Transport) -> Any:
        rate = StochasticGradientDescent(learning_rate=DynamicInput(0))
        engine = engines(transport, rate, pipeline_execution_with_tensor_core=True)
        engine.enqueue([[0, 1]])
        engine.receive_activations()
        engine.send_gradients([np.ones((2, 2))], [0.5 if transport.rank else 0.25])
        engine.enqueue([[0, 1]])
        with pytest.raises(CallOrderError, match=r"learning_rates \(0\.25,\); process 1: .* learning_rates \(0\.5,\)"):
            engine.receive_activations()
        engine.send_gradients([np.ones((2, 2))], [0.5])
        (activations,) = engine.receive_activations()
        engine.send_gradients([np.ones((2, 2))], [0.5])
        return activations.tolist(), engine.retrieve("t")["parameters"].tolist()

    for activations, table in unless_raised(in_processes(2, program)):
        assert activations == [[0, 1], [2, 3]]
        assert table == [[-2, -1], [0, 1], [4, 5], [6, 7]]


@pytest.mark.parametrize("call", ["retrieve", "load", "look_up", "update"])
def test_who_has_sent_one_step_less_is_told_where_held_back_updates_are_applied(call: str) -> None:
    arguments: dict[str, list[Any]] = {
        "retrieve": ["t"],
        "load": ["t", {"parameters": np.zeros((4, 2))}],
        "look_up": [[[0, 1]]],
        "update": [[[0, 1]], [np.ones((2, 2))]],
    }

    def program(transport: Transport) -> Any:
        engine = engines(transport, pipeline_execution_with_tensor_core=True)
        engine.enqueue([[0, 1]])
        engine.receive_activations()
        if transport.rank == 0:
            engine.send_gradients([np.ones((2, 2))])
        with pytest.raises(CallOrderError, match=r"process 0: gradients of step 0, .*; process 1: "):
            getattr(engine, call)(*arguments[call])
        engine.send_gradients([np.ones((2, 2))])
        return engine.retrieve("t")["parameters"].tolist()

    for table in unless_raised(in_processes(2, program)):
        assert table == [[-2, -1], [0, 1], [4, 5], [6, 7]]


def test_learning_rates_must_be_the_same() -> None:
    def program(transport: Transport) -> Any:
        engine = engines(transport, StochasticGradientDescent(learning_rate=DynamicInput(0)))
        engine.enqueue([[0, 1]])
        engine.receive_activations()
        with pytest.raises(CallOrderError, match=r"process 1: gradients of step 0, learning_rates \(0\.5,\)"):
            engine.send_gradients([np.ones((2, 2))], [0.5 if transport.rank else 0.25])

    unless_raised(in_processes(2, program))


def test_different_configs_are_told_at_start() -> None:
    def program(transport: Transport) -> Any:
        optimizer = Adagrad(learning_rate=0.25 if transport.rank == 1 else 0.5)
        with pytest.raises(
            ConfigError, match=r"process 1 has 'config.tables\[0\].optimizer.learning_rate: 0.25' where"
        ):
            engines(transport, optimizer)
        with pytest.raises(ConfigError, match=r"process 2 has 'seed: 2' where process 0 has 'seed: 0'"):
            EmbeddingEngine(small_engine(num_tensor_cores=3).config, seed=transport.rank // 2 * 2, transport=transport)

        with pytest.raises(ConfigError, match=r"process 1 has 'config.num_tensor_cores: 2' where process 0 has"):
            engines(transport, num_tensor_cores=2 if transport.rank == 1 else 3)  # too few for three processes

    unless_raised(in_processes(3, program))


def test_optimizers_and_initializers_of_a_caller_are_shared_too() -> None:
    def program(transport: Transport) -> Any:
        config = small_engine(RowWiseAdagrad(learning_rate=1.0), num_tensor_cores=2).config
        ones = replace(config.tables[0], initializer=lambda rows, dimension: np.ones((len(rows), dimension)))
        engine = EmbeddingEngine(replace(config, tables=(ones,)), transport=transport, timeout=10)
        step(engine, [0, 3])
        return state(engine)

    one, other = unless_raised(in_processes(2, program))
    assert_same_bits(one, other)
    assert (one["t"]["parameters"] == 1).all(axis=1).tolist() == [False, True, True, False]


def test_more_processes_than_cores_are_refused() -> None:
    errors = in_processes(2, lambda transport: engines(transport, num_tensor_cores=1))
    assert all("2 processes need at least as many cores" in str(error) for error in errors)


def test_a_process_may_keep_no_row_of_a_table() -> None:
    def program(transport: Transport) -> Any:
        engine = engines(transport, Adagrad(learning_rate=1.0))
        step(engine, [0, 3])
        return state(engine)

    one = small_engine(Adagrad(learning_rate=1.0), num_tensor_cores=6)
    for core in range(6):
        one.enqueue([[0, 3]], core=core)
        one.receive_activations(core)
    for core in range(6):
        one.send_gradients([np.ones((2, 2))], core=core)
    for tables in unless_raised(in_processes(6, program)):
        assert_same_bits(tables, state(one))


def test_bytes_are_counted() -> None:
    def program(transport: Transport) -> Any:
        engine = engines(transport)
        for _ in range(4):
            step(engine, [0, 3])
        return engine.stats()

    for found in unless_raised(in_processes(2, program)):
        assert found["steps"] == 4
        # A row of two floats is asked of the other process and comes and goes, and so does one of its own.
        assert found["least_bytes_sent_per_step"] == found["least_bytes_received_per_step"] == 4 + 8 + 8
        assert found["bytes_sent_per_step"] > found["least_bytes_sent_per_step"]
        assert found["largest_share_of_rows"] == 0.5
    assert small_engine().stats() == {}


@pytest.mark.parametrize("mode", [None, "inference"])
def test_what_travels_ahead_counts_once_it_is_received(mode: str | None) -> None:
    def program(transport: Transport) -> Any:
        found = []
        for is_ahead in (False, True):
            engine: Any = engines(transport)
            engine.enqueue([[0, 1]], mode=mode)
            engine.receive_activations()
            if is_ahead:
                engine.enqueue([[2, 3]])
                engine._tables._background.submit(lambda: None).result()  # the ids are here
            found.append(engine.stats())
        return found

    for alone, ahead in unless_raised(in_processes(2, program)):
        assert ahead == alone
        assert alone["steps"] == (mode is None)


def test_steps_without_a_receive_count_where_they_update() -> None:
    def program(transport: Transport) -> Any:
        engine = engines(transport)
        engine.enqueue([[0, 3]], mode="backward_pass_only")
        steps = [engine.stats()["steps"]]
        engine.send_gradients([np.ones((2, 2))])
        steps.append(engine.stats()["steps"])
        engine.update([[0, 3]], [np.ones((2, 2))])
        return [*steps, engine.stats()["steps"]], engine.stats()["least_bytes_sent_per_step"]

    assert unless_raised(in_processes(2, program)) == [([0, 1, 2], 4 + 8 + 8)] * 2
