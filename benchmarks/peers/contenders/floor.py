"""The memory traffic of a step and nothing else: what no engine with these tables can beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import floor
import numpy as np
from numpy.typing import NDArray

from anycore.batch import IdBatch, read_batch
from anycore.entries import entries_of
from anycore.kernels.tasks import cut_rows
from anycore.sorted_ids import SortedIds, sort_ids
from peers.batches import Batch
from peers.contenders.anycore import Anycore
from peers.contenders.contender import Lap


@dataclass(frozen=True)
class Prepared:
    """The ids by sample, and the distinct rows with their tasks."""

    batch: IdBatch
    sorted_ids: SortedIds
    tasks: NDArray[np.int64]


class Floor:
    """Reads the rows of every id, and reads and writes the record of every distinct row, in anycore's own tables.

    It spoils their values: no numbers are compared once it has run.
    """

    def __init__(self, anycore: Anycore) -> None:
        engine = anycore.engine
        self._anycore = anycore
        self._plan, self._workers = engine._plan, engine._workers
        self._tables: Any = engine._tables
        self._entries = entries_of(self._plan, None, (), (), ())
        self._sums = np.zeros(1, np.float32)

    def prepare(self, batch: Batch) -> Prepared:
        inputs = self._anycore.prepare(batch).inputs
        descriptors = self._tables.descriptors
        read = read_batch(self._plan, descriptors, self._entries, inputs, self._workers)
        ids = sort_ids(self._plan.sample_offsets, descriptors, [read], self._workers)
        tasks = cut_rows(descriptors, self._tables.steps, ids.segments, ids.distinct, ids.rows, ids.starts)
        return Prepared(read, ids, tasks)

    def look_up(self, prepared: Prepared) -> None:
        batch = prepared.batch
        self._workers.run(
            floor.gather,
            batch.tasks,
            self._tables.descriptors,
            batch.ids,
            batch.splits,
            self._sums,
            parallel=not batch.is_small,
        )

    def step(self, prepared: Prepared, lap: Lap) -> None:
        self.look_up(prepared)
        lap("gather")
        ids = prepared.sorted_ids
        small = ids.is_small and len(prepared.tasks) <= len(self._plan.config.tables)
        self._workers.run(
            floor.read_modify_write, prepared.tasks, self._tables.descriptors, ids.rows, parallel=not small
        )
        lap("read, modify, write")
