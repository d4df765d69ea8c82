"""State variables of tables: where they start, and how they are loaded and retrieved through an engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engines import assert_same_bits, small_engine, state
from numpy.typing import NDArray

from anycore import EmbeddingConfig, EmbeddingEngine, FeatureConfig, InputError, ShardingStrategy, TableConfig
from anycore.optimizers import Adagrad, StochasticGradientDescent


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
