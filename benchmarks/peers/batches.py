"""The numbers of a workload: starting values of its tables, ids and weights of a step, gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from peers.workloads import Draw, Workload

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

_BLOCK_ROWS = 65_521
"""A prime: starting values repeat after so many rows, which no stride of ids hits."""
_ZIPF = 1.1


@dataclass(frozen=True)
class Batch:
    """One step's inputs, for each feature in turn; features of one table follow each other."""

    ids: list[Integers]
    splits: Integers
    """int64[batch_size + 1], the same for all features."""
    weights: list[Floats] | None
    gradients: list[Floats]
    """float32[batch_size, dimension] a feature; of a sequence [batch_size · ids_per_sample, dimension]."""

    def ids_of_tables(self, workload: Workload) -> list[Integers]:
        """Returns the ids of all features of each table."""
        share = workload.features_per_table
        return [np.concatenate(self.ids[t * share : (t + 1) * share]) for t in range(workload.num_tables)]

    def distinct_rows(self, workload: Workload) -> int:
        """Returns how many rows a step of this batch changes."""
        return sum(len(np.unique(ids)) for ids in self.ids_of_tables(workload))


class Batches:
    """Draws batches of one workload; each draw's gradients are made once."""

    def __init__(self, workload: Workload, seed: int) -> None:
        self._workload = workload
        self._random = np.random.default_rng(seed)
        self._gradients = {draw: self._draw_gradients(draw) for draw in workload.draws}

    def next(self, draw: Draw) -> Batch:
        """Returns a new batch."""
        workload = self._workload
        count = workload.batch_size * draw.ids_per_sample
        ids = [_ids(self._random, draw.distribution, workload.vocabulary_size, count) for _ in self._features]
        weights = None
        if workload.weighted_mean:
            weights = [self._random.random(count, np.float32) + np.float32(0.5) for _ in self._features]
        splits = np.arange(workload.batch_size + 1) * draw.ids_per_sample
        return Batch(ids, splits, weights, self._gradients[draw])

    @property
    def _features(self) -> range:
        return range(self._workload.num_features)

    def _draw_gradients(self, draw: Draw) -> list[Floats]:
        rows = self._workload.batch_size * (draw.ids_per_sample if self._workload.sequence else 1)
        return [self._random.standard_normal((rows, self._workload.dimension), np.float32) for _ in self._features]


def initial_values(table: int, rows: Integers, dimension: int) -> Floats:
    """Returns the starting values of some rows of a table, float32[rows, dimension]."""
    return _block(dimension)[(rows + 7919 * table) % _BLOCK_ROWS]


def initial_chunks(workload: Workload, table: int) -> Iterator[tuple[slice, Floats]]:
    """Yields the starting values of a whole table piece by piece, so that nobody needs a second table for them."""
    for first in range(0, workload.vocabulary_size, _BLOCK_ROWS):
        place = slice(first, min(first + _BLOCK_ROWS, workload.vocabulary_size))
        yield place, initial_values(table, np.arange(place.start, place.stop), workload.dimension)


@lru_cache(maxsize=1)
def _block(dimension: int) -> Floats:
    return np.random.default_rng(1).uniform(-0.1, 0.1, (_BLOCK_ROWS, dimension)).astype(np.float32)


def _ids(random: np.random.Generator, distribution: str, vocabulary_size: int, count: int) -> Integers:
    if distribution == "Zipf 1.1":
        weights = _zipf_weights(vocabulary_size)
        ranks = np.searchsorted(weights, random.random(count) * weights[-1])
        # Popular ids must not lie side by side in memory, as they do not in a hashed vocabulary.
        return ranks * 7919 % vocabulary_size
    ids = random.integers(0, vocabulary_size, count)
    if distribution == "hot":
        ids[random.random(count) < 0.5] = vocabulary_size // 3
    return ids


@lru_cache(maxsize=1)
def _zipf_weights(vocabulary_size: int) -> NDArray[np.float64]:
    return np.cumsum(np.arange(1, vocabulary_size + 1, dtype=np.float64) ** -_ZIPF)
