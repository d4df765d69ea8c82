"""Workloads: tables, and batches of ids drawn for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from anycore import EmbeddingConfig, FeatureConfig, Ragged, ShardingStrategy, TableConfig
from anycore.optimizers import Adagrad, Optimizer


@dataclass(frozen=True)
class Workload:
    """One feature a table, all tables alike, `ids_per_sample` ids in every sample."""

    num_tables: int = 26
    vocabulary_size: int = 200_000
    dimension: int = 64
    batch_size: int = 2048
    ids_per_sample: int = 20
    zipf: float = 0.0
    """Exponent of the ids' distribution; 0 draws them uniformly."""
    optimizer: Optimizer = field(default_factory=Adagrad)
    sharding_strategy: ShardingStrategy = ShardingStrategy.DIV_DEFAULT

    def __str__(self) -> str:
        ids = "uniform" if not self.zipf else f"Zipf {self.zipf:g}"
        return (
            f"{self.num_tables} x {self.vocabulary_size:,} x {self.dimension}, batch {self.batch_size:,}, "
            f"{self.ids_per_sample} ids a sample, {ids}"
        )

    def config(self) -> EmbeddingConfig:
        """Returns the configuration of the tables and features."""
        names = [f"table_{k}" for k in range(self.num_tables)]
        tables = [TableConfig(name, self.vocabulary_size, self.dimension, self.optimizer) for name in names]
        features = [FeatureConfig(name, name, [self.batch_size]) for name in names]
        return EmbeddingConfig(tables, features, sharding_strategy=self.sharding_strategy)

    def batch(self, random: np.random.Generator) -> list[Ragged]:
        """Returns one step's inputs."""
        splits = np.arange(self.batch_size + 1) * self.ids_per_sample
        count = self.batch_size * self.ids_per_sample
        return [Ragged(splits, draw(random, count, self.vocabulary_size, self.zipf)) for _ in range(self.num_tables)]

    def gradients(self, random: np.random.Generator) -> list[NDArray[np.float32]]:
        """Returns small gradients for every activation."""
        shape = (self.batch_size, self.dimension)
        return [random.standard_normal(shape, np.float32) * np.float32(1e-3) for _ in range(self.num_tables)]


def draw(
    random: np.random.Generator, count: int, vocabulary_size: int, zipf: float, *, by_popularity: bool = False
) -> NDArray[np.int64]:
    """Returns ids of a Zipf distribution, uniform ones where its exponent is 0.

    With `by_popularity` the most popular id is 0, and so on. Otherwise popular ids do not lie side by side in memory,
    as they do not in a hashed vocabulary.
    """
    if not zipf:
        return random.integers(0, vocabulary_size, count)
    weights = _cumulative_weights(vocabulary_size, zipf)
    ranks = np.searchsorted(weights, random.random(count) * weights[-1])
    return ranks if by_popularity else ranks * 7919 % vocabulary_size


@lru_cache(maxsize=64)
def _cumulative_weights(vocabulary_size: int, zipf: float) -> NDArray[np.float64]:
    return np.cumsum(np.arange(1, vocabulary_size + 1, dtype=np.float64) ** -zipf)
