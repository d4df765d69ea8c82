"""The float64 reference against numbers made by TensorFlow or worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from golden import GOLDEN, Golden
from hypothesis import given, settings
from numpy.testing import assert_array_equal
from reference import ReferenceEngine
from reference_inputs import Ragged, Sparse
from strategies import Scenario, assert_agree, replay, scenarios, wrapper
from tolerance import FLOAT64, STEP

from anycore.proto import TPUEmbeddingConfiguration

SGD = {"stochastic_gradient_descent": {}, "learning_rate": {"constant": 1.0}}


def table(vocabulary_size: int, dimension: int, parameters: dict, name: str = "table", **fields: Any) -> dict:
    sizes = {"vocabulary_size": vocabulary_size, "dimension": dimension}
    return {"name": name, **sizes, "optimization_parameters": parameters, **fields}


def engine_of(tables: list[dict], shapes: list[tuple[int, list[int]]], **fields: Any) -> ReferenceEngine:
    """An engine in feature mode; `shapes` lists (table_id, input_shape). Tables hold 0, 1, 2, ... row by row."""
    features = [{"table_id": table_id, "input_shape": shape} for table_id, shape in shapes]
    defaults = {"mode": "TRAINING", "num_hosts": 1, "num_tensor_cores": 1}
    config = TPUEmbeddingConfiguration(table_descriptor=tables, feature_descriptor=features, **{**defaults, **fields})
    engine = ReferenceEngine(config)
    for name, variables in engine.tables.items():
        shape = variables["parameters"].shape
        engine.load(name, {"parameters": np.arange(np.prod(shape)).reshape(shape)})
    return engine


def step(engine: ReferenceEngine, batch: list, gradients: list, learning_rates: list[float] | tuple = ()) -> list:
    engine.enqueue(batch)
    activations = engine.receive_activations()
    engine.send_gradients(gradients, learning_rates)
    return activations


@pytest.mark.parametrize("dynamic", [False, True], ids=["constant", "dynamic"])
@pytest.mark.parametrize("case", GOLDEN, ids=str)
def test_golden_numbers(case: Golden, dynamic: bool) -> None:
    rate = {"dynamic": {"tag": 0}} if dynamic else {"constant": case.learning_rate}
    engine = engine_of([table(2, 3, {case.optimizer: case.hyper_parameters, "learning_rate": rate})], [(0, [2])])
    engine.load("table", {"parameters": case.parameters, **case.slots})
    rates = [case.learning_rate] if dynamic else []
    activations = step(engine, [np.array([1, 0])], [case.gradient[[1, 0]]], rates)
    assert_array_equal(activations[0], case.parameters[[1, 0]])
    variables = engine.retrieve("table")
    assert list(variables) == ["parameters", *case.slots]
    for ours, theirs in zip(variables.values(), case.out, strict=True):
        STEP.assert_close(ours, theirs)


def test_step_counter_has_a_tag_of_its_own() -> None:
    hyper = {
        "probability_exponent": 0.5,
        "accumulator_decay": 0.5,
        "max_lr_multiplier": 10.0,
        "step_counter": {"tag": 1},
    }
    parameters = {"frequency_aware_adagrad": hyper, "learning_rate": {"dynamic": {"tag": 0}}}
    engine = engine_of([table(1, 1, parameters)], [(0, [1])])
    engine.load("table", {"parameters": [[1.0]], "accumulators": [[10.0]], "counters": [[1.0]]})
    step(engine, [np.array([0])], [np.array([[2.0]])], [0.5, 18.0])
    FLOAT64.assert_close(engine.retrieve("table")["parameters"], [[0.0]])  # 1 - 0.5 * 2 * 3 / 3


def test_refuses_non_lazy_without_accumulation() -> None:
    parameters = {"adam": {"use_non_lazy_adam": True}, "gradient_accumulation_status": "DISABLED"}
    with pytest.raises(ValueError, match="needs gradient accumulation"):
        engine_of([table(1, 1, parameters)], [(0, [1])])


# The fixture of TensorFlow's own tests: video sums, user averages, parameters count from 0, batches of two.


@pytest.mark.parametrize("num_cores", [1, 2])
@pytest.mark.parametrize("sparse", [False, True], ids=["ragged", "sparse"])
def test_base_fixture(num_cores: int, sparse: bool) -> None:
    parameters = {"adagrad": {}, "learning_rate": {"constant": 0.5}}
    tables = [table(8, 4, parameters, "video"), table(16, 2, SGD, "user")]
    engine = engine_of(tables, [(0, [2]), (0, [2]), (1, [2])], num_tensor_cores=num_cores)
    engine.load("video", {"accumulators": np.full((8, 4), 0.1)})
    batch: list = [Ragged([0, 1, 3], [0, 0, 1]), Ragged([0, 2, 3], [0, 1, 1]), Ragged([0, 1, 4], [3, 0, 1, 2])]
    if sparse:
        batch[0] = Sparse([[0, 0], [1, 0], [1, 1]], [0, 0, 1])
        batch[1] = Sparse([[0, 0], [0, 1], [1, 0]], [0, 1, 1])
        batch[2] = Sparse([[0, 0], [1, 0], [1, 1], [1, 2]], [3, 0, 1, 2])
    for core in range(num_cores):
        engine.enqueue(batch, combiners=["sum", "mean"], core=core)
    for core in range(num_cores):
        activations = engine.receive_activations(core)
        assert_array_equal(activations[0], [[0, 1, 2, 3], [4, 6, 8, 10]])
        assert_array_equal(activations[1], [[4, 6, 8, 10], [4, 5, 6, 7]])
        assert_array_equal(activations[2], [[6, 7], [2, 3]])
        # The loss is, summed over features, the mean over the global batch of the squared activations.
        engine.send_gradients([2 * a / (2 * num_cores) for a in activations], core=core)
    video = np.zeros((8, 4))
    video[0] = [8, 13, 18, 23]  # watched [0 1 2 3] + [4 6 8 10], favorited [4 6 8 10]
    video[1] = [12, 17, 22, 27]  # watched [4 6 8 10], favorited [4 6 8 10] + [4 5 6 7]
    user = np.zeros((16, 2))
    user[3], user[:3] = [6, 7], [2 / 3, 1]
    accumulators = np.float32(0.1) + video**2
    expected = np.arange(32).reshape(8, 4) - 0.5 * video / np.sqrt(accumulators)
    FLOAT64.assert_close(engine.retrieve("video")["accumulators"], accumulators)
    FLOAT64.assert_close(engine.retrieve("video")["parameters"], expected)
    FLOAT64.assert_close(engine.retrieve("user")["parameters"], np.arange(32).reshape(16, 2) - user)


# What an entry means


@pytest.mark.parametrize("combiners", [["sum", "mean"], ["sum", "mean", "mean"]], ids=["per table", "per feature"])
def test_combiners_of_tables_and_features(combiners: list[str]) -> None:
    engine = engine_of([table(8, 2, SGD), table(8, 2, SGD, "b")], [(1, [1]), (0, [1]), (1, [1])], mode="INFERENCE")
    engine.enqueue([Ragged([0, 2], [1, 2])] * 3, combiners=combiners)
    total, average = [6, 8], [3, 4]
    expected = [average, total, average] if len(combiners) == 2 else [total, average, average]
    assert_array_equal(np.concatenate(engine.receive_activations()), expected)


@pytest.mark.parametrize(
    ("count", "keywords", "message"),
    [
        (1, {"table_ids": [1]}, "one entry for each feature"),
        (2, {}, "one entry for each feature"),
        (1, {"max_sequence_lengths": [1, 1]}, "one entry for each feature"),
        (1, {"combiners": ["sum", "sum"]}, "combiners must be"),
        (1, {"core": 1}, "core must lie"),
    ],
)
def test_refuses_bad_calls(count: int, keywords: dict, message: str) -> None:
    engine = engine_of([table(8, 2, SGD)], [(0, [1])])
    with pytest.raises(ValueError, match=message):
        engine.enqueue([np.array([1])] * count, **keywords)


# Table mode


def table_engine(batch_size: int, num_features: int) -> ReferenceEngine:
    fields = {"batch_size_per_tensor_core": batch_size}
    return engine_of([table(8, 1, SGD, num_features=num_features)], [], mode="INFERENCE", **fields)


def test_table_mode_interleaves_features() -> None:
    engine = table_engine(2, 2)
    engine.enqueue([np.array([1, 2, 3, 4])])
    assert_array_equal(engine.receive_activations()[0], [[1], [2], [3], [4]])
    engine.enqueue([Sparse([1, 2, 2], [1, 2, 3])])
    assert_array_equal(engine.receive_activations()[0], [[0], [1], [5], [0]])


def test_table_mode_blocks_of_entries() -> None:
    engine = table_engine(2, 6)
    keywords: dict = {"table_ids": [0, 0, 0], "num_features": [1, 2, 1], "max_sequence_lengths": [2, 0, 2]}
    first = Sparse([[0, 1], [1, 0], [1, 5]], [1, 2, 7])  # sequence of 2
    second = Ragged([0, 2, 2, 3, 4], [1, 2, 3, 4])  # two rows a sample
    third = Ragged([0, 3, 3], [5, 6, 7])  # sequence of 2, cut
    engine.enqueue([first, second, third], **keywords)
    assert_array_equal(engine.receive_activations()[0].ravel(), [0, 1, 3, 0, 5, 6, 2, 0, 3, 4, 0, 0])


def test_table_mode_occurrences_go_by_activation_row() -> None:
    parameters = {"assign": {}, "gradient_accumulation_status": "DISABLED"}
    engine = engine_of([table(1, 1, parameters, num_features=2)], [], batch_size_per_tensor_core=2)
    engine.enqueue([np.array([0, 0]), Sparse([0], [0])], table_ids=[0, 0])  # rows 0 and 2, row 1
    engine.receive_activations()
    engine.send_gradients([np.array([[1.0], [2.0], [3.0], [4.0]])])
    assert engine.retrieve("table")["parameters"].item() == 3.0


def test_table_mode_refusals() -> None:
    engine = table_engine(2, 2)
    with pytest.raises(ValueError, match="3 ids for 4"):
        engine.enqueue([np.array([1, 2, 3])])
    with pytest.raises(ValueError, match=r"fill \[1\] rows per sample"):
        engine.enqueue([np.array([1, 2])], table_ids=[0])


# The life of an update


def one_row(parameters: dict, value: float = 1.0, **fields: Any) -> ReferenceEngine:
    engine = engine_of([table(2, 1, {"learning_rate": {"constant": 0.5}, **parameters})], [(0, [2])], **fields)
    engine.load("table", {"parameters": [[value], [value]]})
    return engine


def test_order_of_clip_decay_rule_clip() -> None:
    limits = {
        "gradient_clipping_limits": {"lower": {"value": -2.0}, "upper": {"value": 1.0}},
        "clipping_limits": {"upper": {"value": 0.375}},
    }
    decay = {"weight_decay_factor": 0.25, "multiply_weight_decay_factor_by_learning_rate": True}
    engine = one_row({"stochastic_gradient_descent": {}, **limits, **decay})
    step(engine, [np.array([0, 0])], [np.array([[3.0], [1.0]])])  # 4 is clipped to 1; 1 - 1/8 - 1/2
    assert_array_equal(engine.retrieve("table")["parameters"], [[0.375], [1.0]])
    step(engine, [np.array([0, 1])], [np.array([[-9.0], [0.0]])])  # 0.375 * 7/8 + 1, clipped; 1 - 1/8, clipped
    assert_array_equal(engine.retrieve("table")["parameters"], [[0.375], [0.375]])


def test_decay_without_rate_spares_untouched_rows() -> None:
    engine = one_row({"stochastic_gradient_descent": {}, "weight_decay_factor": 0.25})
    step(engine, [np.array([0])], [None])
    assert_array_equal(engine.retrieve("table")["parameters"], [[0.75], [1.0]])


@pytest.mark.parametrize(("status", "expected"), [("DISABLED", 8.0), ("UNSPECIFIED", 9.5), ("ENABLED", 9.5)])
def test_accumulation(status: str, expected: float) -> None:
    engine = one_row({"momentum": {"momentum": 0.5}, "gradient_accumulation_status": status}, 12.0)
    engine.load("table", {"momenta": [[0.0], [0.0]]})
    step(engine, [np.array([0, 0])], [np.array([[6.0], [-1.0]])])
    # Summed: m = 5. One by one: m = 6, w = 9, then m = 2, w = 8.
    assert_array_equal(engine.retrieve("table")["parameters"], [[expected], [12.0]])


@pytest.mark.parametrize(("occurrences", "expected"), [(8, 8.0), (5, 5.0), (3, 3.0), (2, 2.0)])
def test_occurrences_go_by_core_feature_and_sample(occurrences: int, expected: float) -> None:
    parameters = {"assign": {}, "gradient_accumulation_status": "DISABLED"}
    engine = engine_of([table(1, 1, parameters)], [(0, [2]), (0, [2])], num_tensor_cores=2)
    counts = np.clip(occurrences - 2 * np.arange(4), 0, 2).reshape(2, 2)  # ids of each core and feature
    for core in (1, 0):
        engine.enqueue([np.zeros(count, int) for count in counts[core]], core=core)
        engine.receive_activations(core)
    for core in (1, 0):
        engine.send_gradients(np.arange(1.0, 9.0).reshape(2, 2, 2, 1)[core], core=core)
    assert engine.retrieve("table")["parameters"].item() == expected  # the gradient of the last occurrence


def test_touched_with_zero_gradient_is_touched() -> None:
    engine = one_row({"momentum": {"momentum": 0.5}})
    engine.load("table", {"momenta": [[1.0], [1.0]]})
    step(engine, [Sparse([0], [0], [0.0])], [None])
    assert_array_equal(engine.retrieve("table")["momenta"], [[0.5], [1.0]])


@pytest.mark.parametrize("non_lazy", [False, True])
def test_non_lazy_adam_updates_all_rows(non_lazy: bool) -> None:
    hyper = {"beta1": 0.5, "beta2": 0.5, "epsilon": 1.0, "use_non_lazy_adam": non_lazy}
    engine = one_row({"adam": hyper, "weight_decay_factor": 0.5})
    engine.load("table", {"momenta": [[1.0], [1.0]], "velocities": [[8.0], [8.0]]})
    step(engine, [np.array([0])], [None])
    expected = 0.5 - 0.5 * 0.5 / 3
    FLOAT64.assert_close(engine.retrieve("table")["parameters"], [[expected], [expected if non_lazy else 1.0]])


def test_shared_tags_and_cores() -> None:
    shared = {"stochastic_gradient_descent": {}, "learning_rate": {"dynamic": {"tag": 0}}}
    other = {"stochastic_gradient_descent": {}, "learning_rate": {"dynamic": {"tag": 1}}}
    tables = [table(1, 1, parameters, name) for name, parameters in zip("abc", (shared, other, shared), strict=True)]
    engine = engine_of(tables, [(0, [1]), (1, [1]), (2, [1])], num_tensor_cores=2)
    for core in (1, 0):
        engine.enqueue([np.array([0])] * 3, core=core)
        engine.receive_activations(core)
        engine.send_gradients([np.ones((1, 1))] * 3, [0.5, 0.25], core)
    assert [engine.retrieve(name)["parameters"].item() for name in "abc"] == [-1.0, -0.5, -1.0]


def test_rates_are_float32() -> None:
    engine = one_row({"stochastic_gradient_descent": {}, "learning_rate": {"dynamic": {"tag": 0}}}, 0.0)
    step(engine, [np.array([0])], [np.ones((2, 1))], [0.1])
    assert engine.retrieve("table")["parameters"][0, 0] == -float(np.float32(0.1))


def test_quantization_is_forward_only() -> None:
    limits = {"lower": {"value": 0.0}, "upper": {"value": 1.0}}
    quantization = {"enabled": True, "clipping_limits": limits, "num_buckets": 5}
    engine = one_row({"stochastic_gradient_descent": {}, "simulated_quantization": quantization})
    engine.load("table", {"parameters": [[0.375], [-3.0]]})
    activations = step(engine, [Ragged([0, 2, 4], [0, 0, 0, 1])], [np.array([[0.0625], [0.0]])])
    assert_array_equal(activations[0], [[1.0], [0.5]])  # 0.375 lies between 0.25 and 0.5: up
    assert_array_equal(engine.slack[0][0], [[0.5], [0.25]])
    assert_array_equal(engine.retrieve("table")["parameters"], [[0.375 - 0.0625], [-3.0]])


@pytest.mark.parametrize(
    ("pipelined", "expected"), [(False, [8, 7, 6, 5, 5, 14]), (True, [8, 8, 7, 5, 5, 14])], ids=["strict", "pipelined"]
)
def test_pipeline_is_one_step_stale(pipelined: bool, expected: list[float]) -> None:
    """Inference, load and retrieve come after the update that is still held back."""
    engine = one_row(SGD, 8.0, pipeline_execution_with_tensor_core=pipelined)
    seen = []
    for mode in ("train", "training", "train", "inference", None, "load", "unspecified"):
        if mode == "load":
            engine.load("table", {"parameters": engine.retrieve("table")["parameters"] + 10.0})
            continue
        engine.enqueue([np.array([0])], mode=mode)
        seen.append(engine.receive_activations()[0][0, 0])
        if mode != "inference":
            engine.send_gradients([np.array([[1.0], [0.0]])])
    assert seen == expected
    assert engine.retrieve("table")["parameters"][0, 0] == 13


def test_inference_and_backward_only() -> None:
    engine = one_row(SGD)
    engine.enqueue([np.array([0])], mode="backward_pass_only")
    engine.send_gradients([np.ones((2, 1))])
    assert engine.retrieve("table")["parameters"][0, 0] == 0.0
    engine.enqueue([np.array([0])], mode="inference")
    engine.receive_activations()
    with pytest.raises(RuntimeError, match="send_gradients before"):
        engine.send_gradients([np.ones((2, 1))])


def test_refuses_wrong_order_and_gradients() -> None:
    engine = one_row(SGD)
    with pytest.raises(RuntimeError, match="receive_activations before enqueue"):
        engine.receive_activations()
    engine.enqueue([np.array([0])])
    with pytest.raises(RuntimeError, match="send_gradients before receive"):
        engine.send_gradients([None])
    engine.receive_activations()
    for gradients, rates in (([None, None], ()), ([np.ones((1, 1))], ()), ([None], (0.1,))):
        with pytest.raises(ValueError, match=r"gradients must have|expected 0 finite"):
            engine.send_gradients(gradients, rates)
    engine.enqueue([np.array([0])])
    with pytest.raises(RuntimeError, match="before the gradients of the step before"):
        engine.receive_activations()


# Scenarios


@settings(max_examples=60, deadline=None)
@given(scenarios(TPUEmbeddingConfiguration))
def test_scenarios_are_well_conditioned(scenario: Scenario) -> None:
    """float32 and float64 agree on every scenario, so a difference between engines is a mistake."""
    wrap = wrapper(Sparse, Ragged)
    single = replay(scenario, ReferenceEngine(scenario.config, np.float32), wrap)
    assert_agree(single, replay(scenario, ReferenceEngine(scenario.config), wrap))


def test_agreement_can_fail() -> None:
    engine = one_row(SGD)
    scenario = Scenario(engine.config, [], seed=0)
    outcome, other = (replay(scenario, one_row(SGD), wrapper(Sparse, Ragged)) for _ in range(2))
    assert_agree(outcome, other)
    other.tables[0]["table"]["parameters"][1, 0] += 1e-4
    with pytest.raises(AssertionError, match="parameters of table, retrieval 0"):
        assert_agree(outcome, other)
