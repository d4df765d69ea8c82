"""The ids of a step in row order: a stable radix sort for each table, then the distinct rows and where each starts."""

from __future__ import annotations

import numpy as np
from numba import njit

from anycore.kernels.pointers import fetch_add, floats, integers
from anycore.kernels.records import ROWS

_DIGIT = 11
_U1 = np.uint64(1)
_ONE = np.float32(1)


@njit(nogil=True, cache=True)
def bit_length(value):
    """Number of bits that `value` >= 0 needs."""
    bits = 0
    while value > 0:
        value >>= 1
        bits += 1
    return bits


@njit(nogil=True, cache=True)
def sort_rows(
    counter, tables, sample_offsets, cores, weighted, id_offsets, samples, sorted_gains, rows, starts, distinct
):
    """Sorts the tables that this thread draws from `counter`, each by row, then core, then sample.

    cores int64[C, 3]: addresses of each core's splits, ids and gains, of which gains hold where weighted[core, table].
    Table t has the places id_offsets[t] … id_offsets[t + 1] of `samples` and `sorted_gains`, and those from
    id_offsets[t] + t on of `rows` and `starts`: starts[id_offsets[t] + t + k] is the first place of its distinct row k,
    and one more start closes the list. `samples` counts from the table's first sample row, core after core.
    """
    size = 0
    for table in range(len(distinct)):
        size = max(size, id_offsets[table + 1] - id_offsets[table])
    keys, spare = np.empty(size, np.uint64), np.empty(size, np.uint64)
    owners = np.empty(size, np.int32)
    gains = np.empty(size if weighted.any() else 0, np.float32)
    while True:
        table = fetch_add(counter, 0)
        if table >= len(distinct):
            return
        offset, count = id_offsets[table], id_offsets[table + 1] - id_offsets[table]
        shift = np.uint64(bit_length(count))
        is_weighted = weighted[:, table].any()
        _gather(table, sample_offsets, cores, weighted, is_weighted, shift, keys, owners, gains)
        keys, spare = _radix_sort(keys, spare, count, shift, bit_length(tables[table, ROWS] - 1))
        place_mask = (_U1 << shift) - _U1
        new_rows, new_starts = rows[offset + table :], starts[offset + table :]
        k = -1
        previous = np.int64(-1)
        for i in range(count):
            row = np.int64(keys[i] >> shift)
            place = np.int64(keys[i] & place_mask)
            samples[offset + i] = owners[place]
            if is_weighted:
                sorted_gains[offset + i] = gains[place]
            if row != previous:
                k += 1
                new_rows[k], new_starts[k] = row, offset + i
                previous = row
        distinct[table] = k + 1
        new_starts[k + 1] = offset + count


@njit(nogil=True, cache=True)
def _gather(table, sample_offsets, cores, weighted, is_weighted, shift, keys, owners, gains):
    """Lists the ids of one table, core after core: keys are id, then place; owners the sample of each place."""
    first, last = sample_offsets[table], sample_offsets[table + 1]
    place = 0
    for core in range(len(cores)):
        splits = integers(cores[core, 0], sample_offsets[-1] + 1)
        ids = integers(cores[core, 1], splits[-1])
        core_gains = floats(cores[core, 2], splits[-1])
        for sample in range(first, last):
            for i in range(splits[sample], splits[sample + 1]):
                keys[place] = (np.uint64(ids[i]) << shift) | np.uint64(place)
                owners[place] = sample - first + core * (last - first)
                if is_weighted:
                    gains[place] = core_gains[i] if weighted[core, table] else _ONE
                place += 1


@njit(nogil=True, cache=True)
def _radix_sort(keys, spare, size, shift, bits):
    """Returns (sorted, other buffer): keys[:size] ordered by `bits` bits from `shift` on, stably."""
    passes = max(1, (bits + _DIGIT - 1) // _DIGIT)
    width = np.uint64((bits + passes - 1) // passes)
    buckets = np.int64(_U1 << width)
    mask = np.uint64(buckets - 1)
    places = np.empty(buckets, np.int64)
    for _ in range(passes):
        places[:] = 0
        for k in range(size):
            places[np.int64((keys[k] >> shift) & mask)] += 1
        total = 0
        for digit in range(buckets):
            total, places[digit] = total + places[digit], total
        for k in range(size):
            digit = np.int64((keys[k] >> shift) & mask)
            spare[places[digit]] = keys[k]
            places[digit] += 1
        keys, spare = spare, keys
        shift += width
    return keys, spare
