"""The ids of a step by row: each distinct row of each table, and which samples of which cores looked it up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anycore import recycled
from anycore.arrays import address
from anycore.batch import IdBatch
from anycore.kernels.parallel import Workers
from anycore.kernels.sort import COUNT, cut_segments, sort_rows

_SMALL_STEP = 1 << 12
_SMALLEST_SEGMENT = 1 << 16


@dataclass(frozen=True)
class SortedIds:
    """Row-major order of the ids of all cores; arrays as `kernels.sort.sort_rows` lays them out."""

    rows: NDArray[np.int64]
    starts: NDArray[np.int64]
    samples: NDArray[np.int32]
    gains: NDArray[np.float32]
    weighted: NDArray[np.bool_]
    segments: NDArray[np.int64]
    """As `kernels.sort.cut_segments` cuts them."""
    distinct: NDArray[np.int64]
    """int64[segments]: number of distinct rows of each."""

    @property
    def is_small(self) -> bool:
        """True when one thread is done before others would wake."""
        return len(self.samples) < _SMALL_STEP


def sort_ids(
    sample_offsets: NDArray[np.int64], tables: NDArray[np.int64], batches: Sequence[IdBatch], workers: Workers
) -> SortedIds:
    """Returns the ids of one step, the batches of all cores in core order, sorted by row.

    Table t owns the sample rows sample_offsets[t] … sample_offsets[t + 1] of every batch.
    """
    table_splits = np.array([batch.splits[sample_offsets] for batch in batches])
    id_offsets = table_splits.sum(axis=0)
    cores = np.array([[address(batch.splits), address(batch.ids), address(batch.gains)] for batch in batches])
    segments = cut_segments(tables, sample_offsets, cores, id_offsets, workers.num_threads, _SMALLEST_SEGMENT)
    count, num_segments = int(id_offsets[-1]), len(segments)
    weighted = np.array([batch.weighted for batch in batches])
    any_weighted = np.asarray(weighted.any(axis=0))
    sorted_ids = SortedIds(
        rows=recycled.empty(count + num_segments, np.int64),
        starts=recycled.empty(count + num_segments, np.int64),
        samples=recycled.empty(count, np.int32),
        gains=recycled.empty(count if any_weighted.any() else 0, np.float32),
        weighted=any_weighted,
        segments=segments,
        distinct=np.empty(num_segments, np.int64),
    )
    largest = int(segments[:, COUNT].max(initial=0)) + 1
    scratch = recycled.empty(workers.num_threads * 3 * largest, np.uint64).reshape(workers.num_threads, 3, largest)
    workers.run(
        sort_rows,
        tables,
        sample_offsets,
        cores,
        weighted,
        segments,
        scratch,
        sorted_ids.samples,
        sorted_ids.gains,
        sorted_ids.rows,
        sorted_ids.starts,
        sorted_ids.distinct,
        parallel=not sorted_ids.is_small,
    )
    return sorted_ids
