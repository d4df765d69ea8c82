"""What travels between processes: entries, each the row of a table that one core needs once.

An entry stands for all places of a core that hold its row; or for one of them, where an optimizer is applied to each
occurrence. The messages of a process are ordered by the other process, then core, then table, then row; ids, parameters
and gradients of an entry have the same place in that order.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from anycore.kernels.pointers import FLOAT_BYTES, fetch_add, floats, prefetch, prefetch_record
from anycore.kernels.records import ADDRESS, DIMENSION, STRIDE
from anycore.kernels.sort import OFFSET, TABLE
from anycore.kernels.update import sum_places

_AHEAD = 8


@njit(nogil=True, cache=True)
def list_entries(segments, distinct, rows, starts, id_offsets, summed, entry_rows, entry_starts, table_entries):
    """Lists the entries of one core's sorted ids and returns their number.

    segments, distinct, rows, starts: as `sort.sort_rows` makes them; id_offsets int64[T + 1]; summed bool[T]: whether
    an entry stands for all occurrences of its row. Entry e has the places entry_starts[e] … entry_starts[e + 1] - 1;
    table t the entries table_entries[t] … table_entries[t + 1] - 1.
    """
    n = 0
    table = -1
    for s in range(len(segments)):
        while table < segments[s, TABLE]:
            table += 1
            table_entries[table] = n
        first = segments[s, OFFSET] + s
        for k in range(first, first + distinct[s]):
            step = starts[k + 1] - starts[k] if summed[table] else 1
            for place in range(starts[k], starts[k + 1], step):
                entry_rows[n], entry_starts[n] = rows[k], place
                n += 1
    table_entries[table + 1] = n
    entry_starts[n] = id_offsets[-1]
    return n


@njit(nogil=True, cache=True)
def _owner(row, shards, smaller, larger, is_mod):
    """Returns shard and row within it, as `sharding.Sharding.locate` does; smaller, larger = divmod(rows, shards)."""
    if is_mod:
        return row % shards, row // shards
    if row < larger * (smaller + 1):
        return row // (smaller + 1), row % (smaller + 1)
    rest = row - larger * (smaller + 1)
    return larger + rest // smaller, rest % smaller


@njit(nogil=True, cache=True)
def count_owners(entry_rows, table_entries, vocabulary_sizes, is_mod, counts):
    """Adds to counts int64[W, T] how many entries of each table belong to each process."""
    shards = len(counts)
    for table in range(len(vocabulary_sizes)):
        smaller, larger = vocabulary_sizes[table] // shards, vocabulary_sizes[table] % shards
        for e in range(table_entries[table], table_entries[table + 1]):
            owner, _ = _owner(entry_rows[e], shards, smaller, larger, is_mod)
            counts[owner, table] += 1


@njit(nogil=True, cache=True)
def place_entries(
    entry_rows, table_entries, vocabulary_sizes, dimensions, is_mod, first_slots, first_floats, rows, offsets
):
    """Writes each entry's row within its shard to its slot of `rows`, and the place of its floats to `offsets`.

    first_slots, first_floats int64[W, T]: where the entries of a process and table begin, in rows and in floats.
    """
    shards = len(first_slots)
    slots = np.empty(shards, np.int64)
    for table in range(len(vocabulary_sizes)):
        slots[:] = 0
        dimension = dimensions[table]
        smaller, larger = vocabulary_sizes[table] // shards, vocabulary_sizes[table] % shards
        for e in range(table_entries[table], table_entries[table + 1]):
            owner, row = _owner(entry_rows[e], shards, smaller, larger, is_mod)
            rows[first_slots[owner, table] + slots[owner]] = row
            offsets[e] = first_floats[owner, table] + slots[owner] * dimension
            slots[owner] += 1


@njit(nogil=True, cache=True)
def spread(counter, tasks, entry_starts, positions, id_offsets, offsets, places):
    """Writes to places[i] the float offset of the entry of id i; positions: of each place, counted in its table.

    tasks int64[n, 3]: table, first and last entry.
    """
    while True:
        task = fetch_add(counter, 0)
        if task >= len(tasks):
            return
        table, first, last = tasks[task]
        target = places[id_offsets[table] :]
        for e in range(first, last):
            for place in range(entry_starts[e], entry_starts[e + 1]):
                target[positions[place]] = offsets[e]


@njit(nogil=True, cache=True)
def follow_positions(splits, gains, weighted, sample_offsets, id_offsets, positions, samples, sorted_gains):
    """Writes the sample row and, in tables marked `weighted`, the gain of every place of the sorted ids."""
    owners = np.empty(splits[-1], np.int32)
    for sample in range(len(splits) - 1):
        for i in range(splits[sample], splits[sample + 1]):
            owners[i] = sample
    for table in range(len(sample_offsets) - 1):
        first = id_offsets[table]
        for place in range(first, id_offsets[table + 1]):
            samples[place] = owners[first + positions[place]]
            if weighted[table]:
                sorted_gains[place] = gains[first + positions[place]]


@njit(nogil=True, cache=True)
def gather(counter, tasks, tables, rows, parameters):
    """Copies the parameters of the slots that this thread draws; tasks int64[n, 4]: table, first and last slot, and
    the first one's place in `parameters`."""
    while True:
        task = fetch_add(counter, 0)
        if task >= len(tasks):
            return
        table, first, last, place = tasks[task]
        address, stride, dimension = tables[table, ADDRESS], tables[table, STRIDE], tables[table, DIMENSION]
        for k in range(first, last):
            if k + _AHEAD < last:
                prefetch_record(address + rows[k + _AHEAD] * stride, dimension * FLOAT_BYTES)
            row = floats(address + rows[k] * stride, dimension)
            target = parameters[place + (k - first) * dimension :]
            for d in range(dimension):
                target[d] = row[d]


@njit(nogil=True, cache=True)
def sum_entries(counter, tasks, entry_starts, samples, gains, weighted, gradient_rows, dimensions, offsets, sums):
    """Writes each entry's Σ gain · gradient, in the order of its places, to sums[offsets[e]].

    tasks int64[n, 3]: table, first and last entry; gradient_rows: the address of the gradient of each sample row.
    """
    while True:
        task = fetch_add(counter, 0)
        if task >= len(tasks):
            return
        table, first, last = tasks[task]
        dimension = dimensions[table]
        base = sums.ctypes.data
        for e in range(first, last):
            if e + _AHEAD < last:
                prefetch(gradient_rows[samples[entry_starts[e + _AHEAD]]], dimension * FLOAT_BYTES)
            sum_places(
                base + offsets[e] * FLOAT_BYTES,
                samples,
                gains,
                weighted[table],
                entry_starts[e],
                entry_starts[e + 1],
                gradient_rows,
                dimension,
            )
