"""Which shard holds which row: pure arithmetic.

With q, r = divmod(vocabulary_size, num_shards), the first r shards hold q + 1 rows and the others q, whatever the
strategy.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from math import gcd

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anycore.errors import InputError


class ShardingStrategy(IntEnum):
    """How the ids of a table are spread over its shards.

    Source: `TPUEmbeddingConfiguration.ShardingStrategy`, tpu_embedding_configuration.proto, TensorFlow 2.21.
    """

    DIV_DEFAULT = 0
    """Consecutive ids share a shard."""
    MOD = 1
    """The shard is the id modulo the number of shards."""


@dataclass(frozen=True)
class Sharding:
    """One table cut into `num_shards` shards; ids and `row`s (within a shard) count from 0.

    Source: `ShardingStrategy`, tpu_embedding_configuration.proto, and the partition strategies of
    `tf.nn.embedding_lookup`, TensorFlow 2.21.

    Raises:
        InputError: `num_shards` is not positive.
    """

    table_name: str
    vocabulary_size: int
    num_shards: int
    strategy: ShardingStrategy = ShardingStrategy.DIV_DEFAULT

    def __post_init__(self) -> None:
        if not isinstance(self.num_shards, int | np.integer) or self.num_shards < 1:
            raise InputError(f"table {self.table_name!r}: num_shards must be at least 1, got {self.num_shards}")

    def size(self, shard_id: int) -> int:
        """Returns the number of rows of a shard, which may be 0.

        Raises:
            InputError: there is no such shard.
        """
        if not isinstance(shard_id, int | np.integer) or not 0 <= shard_id < self.num_shards:
            raise InputError(
                f"table {self.table_name!r}: shard_id must be at least 0 and less than num_shards = {self.num_shards}, "
                f"got {shard_id}"
            )
        smaller, larger_shards = divmod(self.vocabulary_size, self.num_shards)
        return smaller + (shard_id < larger_shards)

    def ids_of_shard(self, shard_id: int) -> slice:
        """Returns the ids of a shard in the order of its rows, as a slice of all ids.

        Raises:
            InputError: there is no such shard, or it is empty.
        """
        size = self.size(shard_id)
        if not size:
            raise InputError(
                f"table {self.table_name!r}: every shard must hold a row, but shard_id {shard_id} of {self.num_shards} "
                f"is empty; use at most {self.vocabulary_size} shards (TableDescriptor.vocabulary_size)"
            )
        if self.strategy is ShardingStrategy.MOD:
            return slice(shard_id, self.vocabulary_size, self.num_shards)
        first = int(self._first_id(shard_id))
        return slice(first, first + size)

    def range_of_shard(self, shard_id: int) -> range:
        """Returns the ids of a shard in the order of its rows, none if it is empty.

        Raises:
            InputError: there is no such shard.
        """
        if not self.size(shard_id):
            return range(0)
        return range(*self.ids_of_shard(shard_id).indices(self.vocabulary_size))

    def locate(self, ids: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns (shard_id, row) of every id, int64 of the shape of `ids`; ids are not checked."""
        ids = np.asarray(ids, np.int64)
        if self.strategy is ShardingStrategy.MOD:
            return ids % self.num_shards, ids // self.num_shards
        smaller, larger_shards = divmod(self.vocabulary_size, self.num_shards)
        shard_id = np.maximum(ids // (smaller + 1), (ids - larger_shards) // max(smaller, 1))
        return shard_id, ids - self._first_id(shard_id)

    def ids(self, shard_id: ArrayLike, row: ArrayLike) -> NDArray[np.int64]:
        """Returns the id of every (shard_id, row), int64 of their common shape: the inverse of `locate`."""
        shard_id, row = np.asarray(shard_id, np.int64), np.asarray(row, np.int64)
        if self.strategy is ShardingStrategy.MOD:
            return shard_id + self.num_shards * row
        return self._first_id(shard_id) + row

    def _first_id(self, shard_id: ArrayLike) -> NDArray[np.int64]:
        """Returns the first id of shards whose ids are consecutive."""
        smaller, larger_shards = divmod(self.vocabulary_size, self.num_shards)
        shard_id = np.asarray(shard_id, np.int64)
        return shard_id * smaller + np.minimum(shard_id, larger_shards)


def overlap(a: range, b: range) -> range:
    """Returns the ids that are in both of two ascending ranges, as a range."""
    divisor = gcd(a.step, b.step)
    if not a or not b or (b.start - a.start) % divisor:
        return range(0)
    # The first id of `a`, counted in its steps, that is an id of `b` wherever that begins (Chinese remainder theorem).
    turns = b.step // divisor
    steps = (b.start - a.start) // divisor * pow(a.step // divisor, -1, turns) % turns
    first, step = a.start + steps * a.step, a.step * turns
    lowest = max(a.start, b.start)
    first += max(0, -(-(lowest - first) // step)) * step
    return range(first, min(a[-1], b[-1]) + 1, step)
