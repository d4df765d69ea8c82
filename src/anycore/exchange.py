"""Who needs which rows of whom: the entries of this process's cores, and those that others want from it.

Pure: nothing here moves a byte. See `kernels.exchange` for what an entry is and how messages are laid out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anycore import recycled
from anycore.arrays import address
from anycore.batch import IdBatch
from anycore.kernels import exchange
from anycore.kernels.parallel import Workers
from anycore.kernels.pointers import FLOAT_BYTES
from anycore.sorted_ids import sort_ids

_TASK_ENTRIES = 1 << 12


@dataclass(frozen=True)
class CoreEntries:
    """The entries of one core: table t has those from table_entries[t] to table_entries[t + 1], by row."""

    batch: IdBatch
    rows: NDArray[np.int64]
    """int64[E]: the id of each."""
    starts: NDArray[np.int64]
    """int64[E + 1]: its first place."""
    table_entries: NDArray[np.int64]
    id_offsets: NDArray[np.int64]
    positions: NDArray[np.int32]
    """Where in the batch each place is, counted from the table's first id."""

    def tasks(self) -> NDArray[np.int64]:
        """Returns table, first and last entry of pieces of the work."""
        return _cut([(t, *self.table_entries[t : t + 2]) for t in range(len(self.table_entries) - 1)])


def core_entries(
    batch: IdBatch,
    sample_offsets: NDArray[np.int64],
    tables: NDArray[np.int64],
    summed: NDArray[np.bool_],
    workers: Workers,
) -> CoreEntries:
    """Returns the entries of a core's batch; tables int64[T, 4] of all rows, summed[t]: one entry for equal ids."""
    id_offsets = batch.splits[sample_offsets]
    count = int(id_offsets[-1])
    # Every id as a sample of its own: what the sort then carries along is its position.
    places = np.arange(count + 1)
    none = np.zeros(len(tables), np.bool_)
    by_position = IdBatch(batch.ids, np.empty(0, np.float32), none, places, batch.tasks)
    ids = sort_ids(id_offsets, tables, [by_position], workers)
    rows, starts = recycled.empty(count, np.int64), recycled.empty(count + 1, np.int64)
    table_entries = np.zeros(len(tables) + 1, np.int64)
    size = exchange.list_entries(
        ids.segments, ids.distinct, ids.rows, ids.starts, id_offsets, summed, rows, starts, table_entries
    )
    return CoreEntries(batch, rows[:size], starts[: size + 1], table_entries, id_offsets, ids.samples)


@dataclass(frozen=True)
class Wanted:
    """What this process needs: rows of messages to each process, and the place of each entry's floats in its answer."""

    counts: NDArray[np.int64]
    """int64[W, local cores, T]: entries."""
    rows: NDArray[np.int64]
    offsets: list[NDArray[np.int64]]
    """Of each core int64[E]."""
    floats: NDArray[np.int64]
    """int64[W + 1]: where the floats of each process begin."""

    def row_messages(self) -> list[NDArray[np.int64]]:
        """Returns the part of `rows` for each process."""
        ends = np.cumsum(self.counts.sum(axis=(1, 2)))
        return np.split(self.rows, ends[:-1])


def wanted(
    cores: Sequence[CoreEntries],
    vocabulary_sizes: NDArray[np.int64],
    dimensions: NDArray[np.int64],
    size: int,
    is_mod: bool,
) -> Wanted:
    """Returns what the cores need from each of `size` processes."""
    counts = np.zeros((len(cores), size, len(dimensions)), np.int64)
    for entries, of_core in zip(cores, counts, strict=True):
        exchange.count_owners(entries.rows, entries.table_entries, vocabulary_sizes, is_mod, of_core)
    by_process = np.ascontiguousarray(counts.swapaxes(0, 1))
    first_slots, first_floats = firsts(by_process, 1), firsts(by_process, dimensions)
    rows = np.empty(int(by_process.sum()), np.int64)
    offsets = []
    for core, entries in enumerate(cores):
        offsets.append(np.empty(len(entries.rows), np.int64))
        exchange.place_entries(
            entries.rows,
            entries.table_entries,
            vocabulary_sizes,
            dimensions,
            is_mod,
            np.ascontiguousarray(first_slots[:, core]),
            np.ascontiguousarray(first_floats[:, core]),
            rows,
            offsets[-1],
        )
    floats = np.append(0, np.cumsum((by_process * dimensions).sum(axis=(1, 2))))
    return Wanted(by_process, rows, offsets, floats)


@dataclass(frozen=True)
class Asked:
    """What all processes want from this one: rows of its shards, for each core of the whole system in order."""

    counts: NDArray[np.int64]
    """int64[C, T]: entries."""
    rows: NDArray[np.int64]
    first_slots: NDArray[np.int64]
    """int64[C, T]: the first entry of each core and table in `rows`."""
    first_floats: NDArray[np.int64]
    dimensions: NDArray[np.int64]

    def num_floats(self, cores: Sequence[int]) -> NDArray[np.int64]:
        """Returns int64[W + 1]: where the floats of each process begin; cores: the number of each process's."""
        of_core = np.append(0, np.cumsum((self.counts * self.dimensions).sum(axis=1)))
        return of_core[np.append(0, np.cumsum(cores))]

    def tasks(self) -> NDArray[np.int64]:
        """Returns table, first and last slot, and first float, of pieces of the work."""
        groups = [
            (table, slot, slot + count, place)
            for core in range(len(self.counts))
            for table, (slot, count, place) in enumerate(
                zip(self.first_slots[core], self.counts[core], self.first_floats[core], strict=True)
            )
        ]
        return _cut(groups, self.dimensions)

    def sample_offsets(self) -> NDArray[np.int64]:
        """Returns int64[T + 1]: every core's entries as sample rows, as many in each as in the largest."""
        return np.append(0, np.cumsum(self.counts.max(axis=0)))

    def batches(self) -> list[IdBatch]:
        """Returns the entries of each core as a batch: one id for each of its sample rows, none for those beyond."""
        offsets = self.sample_offsets()
        none, no_tasks = np.zeros(len(self.dimensions), np.bool_), np.empty((0, 4), np.int64)
        batches = []
        for counts, slots in zip(self.counts, self.first_slots, strict=True):
            splits = np.empty(int(offsets[-1]) + 1, np.int64)
            splits[0] = 0
            before = 0
            for table, count in enumerate(counts.tolist()):
                first, last = offsets[table : table + 2]
                splits[first + 1 : last + 1] = before + np.minimum(np.arange(1, last - first + 1), count)
                before += count
            ids = self.rows[slots[0] : slots[0] + before]
            batches.append(IdBatch(ids, np.empty(0, np.float32), none, splits, no_tasks))
        return batches

    def gradient_places(self, sums: NDArray[np.float32]) -> NDArray[np.int64]:
        """Returns the arguments of `kernels.update.place_rows` for gradients that lie in `sums` by core and table."""
        offsets, num_cores = self.sample_offsets(), len(self.counts)
        return np.array(
            [
                (
                    offsets[table] * num_cores + core * (offsets[table + 1] - offsets[table]),
                    self.counts[core, table],
                    address(sums) + self.first_floats[core, table] * FLOAT_BYTES,
                    self.dimensions[table] * FLOAT_BYTES,
                )
                for core in range(num_cores)
                for table in range(len(self.dimensions))
            ],
            np.int64,
        )


def asked(counts: NDArray[np.int64], rows: NDArray[np.int64], dimensions: NDArray[np.int64]) -> Asked:
    """Returns what is asked with these messages: counts int64[C, T], rows of all one after another."""
    return Asked(counts, rows, firsts(counts, 1), firsts(counts, dimensions), dimensions)


def firsts(counts: NDArray[np.int64], weights: NDArray[np.int64] | int) -> NDArray[np.int64]:
    """Returns where each part begins when parts of counts · weights lie one after another."""
    sizes = counts * weights
    ends = np.cumsum(sizes).reshape(sizes.shape)
    return ends - sizes


def _cut(groups: Sequence[tuple[int, ...]], dimensions: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Returns the groups (table, first, last[, first float]) in pieces of at most _TASK_ENTRIES."""
    pieces = []
    for table, first, last, *place in groups:
        for begin in range(first, last, _TASK_ENTRIES):
            start = [place[0] + (begin - first) * dimensions[table]] if dimensions is not None else []
            pieces.append((table, begin, min(begin + _TASK_ENTRIES, last), *start))
    return np.array(pieces, np.int64).reshape(len(pieces), 3 if dimensions is None else 4)
