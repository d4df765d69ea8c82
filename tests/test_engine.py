"""The engine against the float64 reference, and its promises: equal bits, what a step does, memory, threads."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import reference_inputs
from engines import State, assert_same_bits, parameters, small_engine, state
from hypothesis import HealthCheck, given, settings
from numpy.typing import NDArray
from reference import ReferenceEngine
from strategies import Scenario, assert_agree, replay, scenarios, wrapper

from anycore import (
    CallOrderError,
    Dense,
    EmbeddingConfig,
    EmbeddingEngine,
    FeatureConfig,
    InputError,
    Mode,
    Ragged,
    Sparse,
    TableConfig,
)
from anycore.initializers import Constant
from anycore.optimizers import (
    FTRL,
    Adagrad,
    AdagradMomentum,
    Adam,
    DynamicInput,
    StochasticGradientDescent,
)
from anycore.proto import TPUEmbeddingConfiguration


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios(TPUEmbeddingConfiguration))
def test_engine_agrees_with_the_reference(scenario: Scenario) -> None:
    engine = EmbeddingEngine(EmbeddingConfig.from_proto(scenario.config), num_threads=2)
    ours = replay(scenario, engine, wrapper(Sparse, Ragged))
    theirs = replay(
        scenario, ReferenceEngine(scenario.config), wrapper(reference_inputs.Sparse, reference_inputs.Ragged)
    )
    assert_agree(ours, theirs)


# Equal bits


OPTIMIZERS = [
    StochasticGradientDescent(learning_rate=0.1),
    Adagrad(learning_rate=DynamicInput(0), gradient_clipping_limits=(-0.5, 0.5)),
    AdagradMomentum(learning_rate=0.1, use_nesterov=True, exponent=3.0),
    Adam(learning_rate=DynamicInput(0), weight_decay_factor=0.01, use_non_lazy_adam=True),
    FTRL(learning_rate=0.1, l1=0.01),
    Adagrad(learning_rate=0.1, gradient_accumulation=False),
]


def train(num_threads: int, num_cores: int, kind: Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], Any]) -> State:
    """Five steps on tables large enough that every thread gets tasks; ids repeat often."""
    tables = [TableConfig(f"t{k}", 3000 + k, 24, optimizer) for k, optimizer in enumerate(OPTIMIZERS)]
    features = [FeatureConfig(f"f{k}", f"t{k % len(tables)}", [256]) for k in range(len(tables) + 2)]
    config = EmbeddingConfig(tables, features, num_tensor_cores=num_cores)
    engine = EmbeddingEngine(config, seed=7, num_threads=num_threads)
    random = np.random.default_rng(0)
    combiners = ["mean", "sum", "sqrtn", "sum", "mean", "sum"]
    for _ in range(5):
        for core in range(num_cores):
            inputs = []
            for k in range(len(features)):
                splits = np.concatenate([[0], np.cumsum(random.integers(0, 12, 256))])
                ids = np.minimum(random.geometric(0.01, splits[-1]), 2999) - 1
                weights = random.random(splits[-1]).astype(np.float32) if k % 2 else np.ones(splits[-1], np.float32)
                inputs.append(kind(splits, ids, weights))
            engine.enqueue(inputs, combiners=combiners, core=core)
        for core in range(num_cores):
            activations = engine.receive_activations(core)
            noise = [random.standard_normal(a.shape).astype(np.float32) for a in activations]
            engine.send_gradients([a + n for a, n in zip(activations, noise, strict=True)], [0.1], core)
    return state(engine)


def as_ragged(splits: NDArray[Any], ids: NDArray[Any], weights: NDArray[Any]) -> Ragged:
    return Ragged(splits, ids, weights)


def as_sparse(splits: NDArray[Any], ids: NDArray[Any], weights: NDArray[Any]) -> Sparse:
    rows = np.repeat(np.arange(len(splits) - 1), np.diff(splits))
    return Sparse(np.stack([rows, np.zeros_like(rows)], axis=1).astype(np.int32), ids.astype(np.int32), weights)


@pytest.mark.parametrize("num_cores", [1, 3])
def test_bits_depend_neither_on_threads_nor_on_the_kind_of_input(num_cores: int) -> None:
    alone = train(1, num_cores, as_ragged)
    assert_same_bits(alone, train(2, num_cores, as_ragged))
    assert_same_bits(alone, train(7, num_cores, as_sparse))


def test_table_mode_and_feature_mode_give_the_same_bits() -> None:
    table = TableConfig("t", 50, 3, Adagrad(learning_rate=0.5))
    by_feature = EmbeddingEngine(EmbeddingConfig([table], [FeatureConfig("f", "t", [8])]))
    by_table = EmbeddingEngine(
        EmbeddingConfig([TableConfig("t", 50, 3, table.optimizer, num_features=2)], batch_size_per_tensor_core=4)
    )
    for seed in range(3):
        ids = np.random.default_rng(seed).integers(0, 50, 8)
        by_feature.enqueue([ids])
        by_table.enqueue([ids[0::2], ids[1::2]], table_ids=[0, 0])
        (a,), (b,) = by_feature.receive_activations(), by_table.receive_activations()
        np.testing.assert_array_equal(a, b)
        by_feature.send_gradients([a])
        by_table.send_gradients([b])
    assert_same_bits(state(by_feature), state(by_table))


# What a step does


def test_equal_ids_share_one_update_and_untouched_rows_stay() -> None:
    engine = small_engine(Adagrad(learning_rate=1.0))
    engine.load("t", {"accumulators": np.ones((4, 2))})
    engine.enqueue([np.array([1, 1])])
    engine.receive_activations()
    engine.send_gradients([np.array([[1.0, 0.0], [2.0, 0.0]])])
    assert engine.retrieve("t")["accumulators"].tolist() == [[1, 1], [10, 1], [1, 1], [1, 1]]
    np.testing.assert_allclose(parameters(engine)[1], [2 - 3 / np.sqrt(10), 3], rtol=1e-6)


def test_a_zero_gradient_still_touches_its_row() -> None:
    engine = small_engine(Adam(learning_rate=0.0, beta1=0.5, weight_decay_factor=0.25))
    engine.load("t", {"momenta": np.ones((4, 2))})
    engine.enqueue([np.array([2])])
    engine.receive_activations()
    engine.send_gradients([None])
    assert engine.retrieve("t")["momenta"][:, 0].tolist() == [1, 1, 0.5, 1]
    assert parameters(engine)[2] == [3, 3.75]


def test_a_dynamic_rate_is_shared_by_its_tag() -> None:
    tables = [
        TableConfig(name, 1, 1, StochasticGradientDescent(learning_rate=DynamicInput(tag)), initializer=Constant(0))
        for name, tag in [("a", 1), ("b", 0), ("c", 1)]
    ]
    engine = EmbeddingEngine(EmbeddingConfig(tables, [FeatureConfig(t.name, t.name, [1]) for t in tables]))
    engine.enqueue([[0], [0], [0]])
    engine.receive_activations()
    engine.send_gradients([[[1.0]], [[1.0]], [[1.0]]], [0.5, np.float32(2)])
    assert [engine.retrieve(name)["parameters"].item() for name in "abc"] == [-2, -0.5, -2]


def test_cores_are_summed_into_one_update() -> None:
    engine = small_engine(Adagrad(learning_rate=1.0), num_tensor_cores=2)
    engine.load("t", {"accumulators": np.zeros((4, 2))})
    for core in (1, 0):
        engine.enqueue([np.array([core, 3])], core=core)
    for core in (0, 1):
        engine.receive_activations(core)
        engine.send_gradients([np.ones((2, 2))], core=core)
        assert (engine.retrieve("t")["accumulators"][3, 0] == 4) is np.bool_(core == 1)


def test_pipelined_activations_are_one_update_behind() -> None:
    engine = small_engine(pipeline_execution_with_tensor_core=True)
    seen = []
    for _ in range(4):
        engine.enqueue([np.array([0])])
        (activations,) = engine.receive_activations()
        seen.append(activations[0, 0])
        engine.send_gradients([np.ones((2, 2))])
    assert seen == [0, 0, -1, -2]
    assert parameters(engine)[0] == [-4, -3]


def test_inference_leaves_tables_alone() -> None:
    engine = small_engine()
    before = state(engine)
    engine.enqueue([Dense([3, 0])], mode="inference")
    assert engine.receive_activations()[0].tolist() == [[6, 7], [0, 1]]
    assert_same_bits(before, state(engine))


def test_a_config_for_inference_does_not_train() -> None:
    engine = small_engine(mode=Mode.INFERENCE)
    engine.enqueue([[1, 1]])
    assert engine.receive_activations()[0].tolist() == [[2, 3], [2, 3]]
    with pytest.raises(InputError, match="mode_override 'train' needs a config that trains"):
        engine.enqueue([[1, 1]], mode="train")
    with pytest.raises(CallOrderError):
        engine.send_gradients([None])


def test_backward_pass_only_trains_without_activations() -> None:
    engine = small_engine(mode=Mode.BACKWARD_PASS_ONLY)
    engine.enqueue([[1, 1]])
    with pytest.raises(CallOrderError, match="received or has no activations"):
        engine.receive_activations()
    engine.send_gradients([np.ones((2, 2))])
    assert parameters(engine)[1] == [0, 1]


# Whose memory it is


def test_the_caller_may_reuse_inputs_after_each_call() -> None:
    for pipelined in (False, True):
        engine = small_engine(pipeline_execution_with_tensor_core=pipelined)
        ids, gradients = np.array([0, 1]), np.ones((2, 2), np.float32)
        engine.enqueue([ids])
        ids[:] = 3
        (activations,) = engine.receive_activations()
        activations[:] = 99
        engine.send_gradients([gradients])
        gradients[:] = 99
        assert parameters(engine) == [[-1, 0], [1, 2], [4, 5], [6, 7]]
        retrieved = engine.retrieve("t")["parameters"]
        retrieved[:] = 99
        assert parameters(engine) == [[-1, 0], [1, 2], [4, 5], [6, 7]]


# Threads of the caller


def test_a_thread_may_enqueue_ahead() -> None:
    engine = small_engine(Adagrad(learning_rate=0.1))
    patient = EmbeddingEngine(engine.config, timeout=60)
    for each in (engine, patient):
        each.load("t", {"parameters": np.arange(8).reshape(4, 2)})
    batches = [np.random.default_rng(step).integers(0, 4, 2) for step in range(50)]

    def feed() -> None:
        for batch in batches:
            patient.enqueue([batch])

    feeder = threading.Thread(target=feed)
    feeder.start()
    for _ in batches:
        patient.send_gradients(patient.receive_activations())
    feeder.join()
    for batch in batches:
        engine.enqueue([batch])
        engine.send_gradients(engine.receive_activations())
    assert_same_bits(state(engine), state(patient))


@pytest.fixture
def often_switched() -> Iterator[None]:
    """Threads take turns every few instructions."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("often_switched")
def test_threads_may_each_drive_a_core() -> None:
    def run(engine: EmbeddingEngine, core: int) -> None:
        random = np.random.default_rng(core)
        for _ in range(30):
            engine.enqueue([random.integers(0, 4, 2)], core=core)
            engine.send_gradients(engine.receive_activations(core), core=core)

    config = EmbeddingConfig(
        [TableConfig("t", 4, 2, Adam(learning_rate=0.1))], [FeatureConfig("f", "t", [2])], num_tensor_cores=3
    )
    results = []
    for _ in range(3):
        engine = EmbeddingEngine(config, timeout=60)
        threads = [threading.Thread(target=run, args=(engine, core)) for core in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        results.append(state(engine))
    assert_same_bits(results[0], results[1])
    assert_same_bits(results[0], results[2])


# Interrupts and memory


def test_an_interrupted_send_is_done_once() -> None:
    engine = small_engine()
    engine.enqueue([[0, 1]])
    engine.receive_activations()

    apply_updates = engine._apply_updates

    def interrupted(**options: bool) -> None:
        signal.raise_signal(signal.SIGINT)
        apply_updates(**options)

    engine._apply_updates = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        engine.send_gradients([np.ones((2, 2))])
    engine._apply_updates = apply_updates  # type: ignore[method-assign]
    assert parameters(engine) == [[-1, 0], [1, 2], [4, 5], [6, 7]]
    with pytest.raises(CallOrderError):
        engine.send_gradients([np.ones((2, 2))])


def test_an_engine_is_freed_with_its_last_reference() -> None:
    engine = small_engine()
    engine.enqueue([[0, 1]])
    engine.send_gradients(engine.receive_activations())
    reference = weakref.ref(engine)
    gc.disable()
    try:
        del engine
        assert reference() is None
    finally:
        gc.enable()
