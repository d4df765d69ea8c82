"""State variables of tables: where they start, how they are loaded and retrieved, batches of other shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engines import assert_same_bits, small_engine, state
from numpy.typing import NDArray

from anycore import (
    CallOrderError,
    ConfigError,
    EmbeddingConfig,
    EmbeddingEngine,
    FeatureConfig,
    InputError,
    ShardingStrategy,
    TableConfig,
)
from anycore.optimizers import Adagrad, Adam, StochasticGradientDescent


@pytest.mark.parametrize(
    ("strategy", "shards"),
    [
        (ShardingStrategy.DIV_DEFAULT, [[0, 1, 2], [3, 4], [5, 6]]),
        (ShardingStrategy.MOD, [[0, 3, 6], [1, 4], [2, 5]]),
    ],
)
def test_shards_are_views_of_the_same_rows(strategy: ShardingStrategy, shards: list[list[int]]) -> None:
    table = TableConfig("t", 7, 1, Adagrad())
    engine = EmbeddingEngine(EmbeddingConfig([table], [FeatureConfig("f", "t", [1])], sharding_strategy=strategy))
    for shard_id, rows in enumerate(shards):
        engine.load("t", {"parameters": np.array(rows)[:, None]}, num_shards=3, shard_id=shard_id)
    assert engine.retrieve("t")["parameters"][:, 0].tolist() == list(range(7))
    for shard_id, rows in enumerate(shards):
        assert engine.retrieve(0, num_shards=3, shard_id=shard_id)["parameters"][:, 0].tolist() == rows


@pytest.mark.parametrize(
    ("table", "variables", "shard", "message"),
    [
        ("x", {}, {}, r"there is no table 'x', the tables are \['t'\]"),
        (1, {}, {}, r"there is no table 1"),
        ("t", {"momenta": np.zeros((4, 2))}, {}, r"no state variable 'momenta', adagrad has parameters, accumulators"),
        ("t", {"parameters": np.zeros((4, 3))}, {}, r"parameters must have shape \(4, 2\), got \(4, 3\)"),
        ("t", {"parameters": np.zeros((4, 2))}, {"num_shards": 2}, r"parameters must have shape \(2, 2\)"),
        ("t", {"accumulators": np.zeros((4, 2)), "parameters": "no"}, {}, r"parameters must be real numbers"),
        ("t", {}, {"num_shards": 2, "shard_id": 2}, r"shard_id must be at least 0 and less than num_shards = 2, got 2"),
        ("t", {}, {"num_shards": 5, "shard_id": 4}, r"shard_id 4 of 5 is empty"),
    ],
)
def test_a_refused_load_changes_nothing(table: Any, variables: Any, shard: Any, message: str) -> None:
    engine = small_engine(Adagrad())
    before = state(engine)
    with pytest.raises(InputError, match=message):
        engine.load(table, variables, **shard)
    assert_same_bits(before, state(engine))


def test_loading_several_tables_is_all_or_nothing() -> None:
    engine = EmbeddingEngine(
        EmbeddingConfig(
            [TableConfig(name, 2, 1, StochasticGradientDescent()) for name in "ab"],
            [FeatureConfig(name, name, [1]) for name in "ab"],
        )
    )
    before = state(engine)
    with pytest.raises(InputError, match="table 'b'"):
        engine.load_tables({"a": {"parameters": np.ones((2, 1))}, "b": {"parameters": np.ones((3, 1))}})
    assert_same_bits(before, state(engine))


def test_starting_values_follow_from_seed_and_name() -> None:
    def start(seed: int, name: str, rows: int) -> NDArray[np.float32]:
        config = EmbeddingConfig([TableConfig(name, rows, 16, Adagrad())], [FeatureConfig("f", name, [1])])
        return EmbeddingEngine(config, seed=seed).retrieve(name)["parameters"]

    values = start(1, "t", 20_000)
    np.testing.assert_array_equal(values[:10], start(1, "t", 10))
    assert (values[:10] != start(2, "t", 10)).any()
    assert (values[:10] != start(1, "u", 10)).any()
    assert abs(values.std() - 0.8796 / 4) < 0.002
    assert np.abs(values).max() <= 0.5


def test_a_reshaped_engine_does_as_one_whose_other_rows_are_empty() -> None:
    def engine(pipelined: bool = False) -> EmbeddingEngine:
        tables = [TableConfig("a", 9, 3, Adagrad()), TableConfig("b", 9, 2, Adam())]
        features = [FeatureConfig("f", "b", [8]), FeatureConfig("g", "a", [8, 2]), FeatureConfig("h", "b", [8])]
        return EmbeddingEngine(EmbeddingConfig(tables, features, pipeline_execution_with_tensor_core=pipelined))

    random = np.random.default_rng(0)
    reshaped, padded = engine(pipelined=True), engine()
    for size in (8, 3, 8, 5):
        f, g, h = (random.integers(0, 9, shape) for shape in ((size,), (size, 2), (size,)))
        gradients = [random.normal(size=(size, *tail)).astype(np.float32) for tail in ((2,), (2, 3), (2,))]
        reshaped.reshape([[size], [size, 2], [size]])
        assert [activation.shape[0] for activation in reshaped.activations] == [size] * 3
        for each in (reshaped, padded):
            each.enqueue([f, g.ravel(), h])
        activations = reshaped.receive_activations()
        for ours, theirs in zip(activations, padded.receive_activations(), strict=True):
            np.testing.assert_array_equal(ours, theirs[:size])
        reshaped.send_gradients(gradients)
        padded.send_gradients([np.concatenate([g, np.zeros((8 - size, *g.shape[1:]), g.dtype)]) for g in gradients])
    assert_same_bits(state(reshaped), state(padded))


def test_reshape_waits_for_no_step() -> None:
    engine = small_engine()
    engine.enqueue([np.array([0, 1])])
    with pytest.raises(CallOrderError, match="reshape: step 0 is under way; finish it first"):
        engine.reshape([[3]])
    engine.receive_activations()
    engine.send_gradients([None])
    engine.reshape([[3]])
    with pytest.raises(ConfigError, match="expected 1 input_shapes, one for each feature, got 2"):
        engine.reshape([[3], [3]])
    with pytest.raises(ConfigError, match="feature 'f': input_shape must be at least 1, got 0"):
        engine.reshape([[0]])
    assert engine.activations[0].shape == (3, 2)
