"""The ids of a step in row order: a stable radix sort, then the distinct rows and where each starts.

What one thread sorts is a segment: a table, or a range of rows of a table with many of the step's ids. Cut or whole,
the order of a row's ids is the same.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from anycore.kernels.pointers import fetch_add, floats, integers
from anycore.kernels.records import ROWS

TABLE, FIRST_ROW, LAST_ROW, OFFSET, COUNT = range(5)
"""Columns of `segments`: the table, its rows from FIRST_ROW to LAST_ROW, and the places of their ids in the step."""
SEGMENT_COLUMNS = 5

_DIGIT = 11
_BIN_BITS = 11
_BINS = 1 << _BIN_BITS
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
def cut_segments(tables, sample_offsets, cores, id_offsets, pieces, smallest):
    """Returns the segments of a step: every table whole, or in up to `pieces` ranges of rows of `smallest` ids or more.

    The arguments are those of `sort_rows`; id_offsets [T + 1]: places of each table. Segments of a table stand in row
    order and leave no row out. Every range reads all ids of its table, so a table stays whole when it is small enough
    for `pieces` threads to share the step evenly, each half of its share or less.
    """
    even = max(1, id_offsets[-1] // (2 * pieces))
    segments = np.empty((len(tables) * pieces, SEGMENT_COLUMNS), np.int64)
    n = 0
    histogram = np.empty(_BINS, np.int64)
    for table in range(len(tables)):
        count, rows = id_offsets[table + 1] - id_offsets[table], tables[table, ROWS]
        parts = max(1, min(pieces, count // smallest, (count + even - 1) // even))
        shift = max(0, bit_length(rows - 1) - _BIN_BITS)
        if parts > 1:
            _count_bins(table, sample_offsets, cores, shift, histogram)
        first_row, place, seen, bin = np.int64(0), id_offsets[table], np.int64(0), 0
        for part in range(1, parts + 1):
            last_row = rows
            if part < parts:
                while seen * parts < count * part:
                    seen += histogram[bin]
                    bin += 1
                last_row = min(rows, np.int64(bin) << shift)
            else:
                seen = count
            segment = segments[n]
            segment[TABLE], segment[FIRST_ROW], segment[LAST_ROW] = table, first_row, last_row
            segment[OFFSET], segment[COUNT] = place, id_offsets[table] + seen - place
            first_row, place = last_row, id_offsets[table] + seen
            n += 1
    return segments[:n]


@njit(nogil=True, cache=True)
def sort_rows(
    counter, tables, sample_offsets, cores, weighted, segments, scratch, samples, sorted_gains, rows, starts, distinct
):
    """Sorts the segments that this thread draws from `counter`, each by row, then core, then sample.

    cores int64[C, 3]: addresses of each core's splits, ids and gains, of which gains hold where weighted[core, table].
    Segment s has the places OFFSET … OFFSET + COUNT of `samples` and `sorted_gains`, and those from OFFSET + s on of
    `rows` and `starts`: starts[OFFSET + s + k] is the first place of its distinct row k, and one more start closes the
    list. `samples` counts from the table's first sample row, core after core. scratch uint64[threads, 3, n], n one more
    than the largest COUNT.
    """
    thread = fetch_add(counter, 1)
    keys, spare = scratch[thread, 0], scratch[thread, 1]
    half = scratch.shape[2]
    owners, gains = scratch[thread, 2].view(np.int32)[:half], scratch[thread, 2].view(np.float32)[half:]
    while True:
        s = fetch_add(counter, 0)
        if s >= len(segments):
            return
        table, first_row, last_row, offset, count = segments[s]
        is_weighted = weighted[:, table].any()
        num_samples = (sample_offsets[table + 1] - sample_offsets[table]) * len(cores)
        shift = np.uint64(bit_length(count if is_weighted else num_samples))
        _gather(segments[s], sample_offsets, cores, weighted, is_weighted, shift, keys, owners, gains)
        keys, spare = _radix_sort(keys, spare, count, shift, bit_length(last_row - first_row - 1))
        mask = (_U1 << shift) - _U1
        new_rows, new_starts = rows[offset + s :], starts[offset + s :]
        new_starts[0] = offset
        k = -1
        previous = np.int64(-1)
        for i in range(count):
            row = first_row + np.int64(keys[i] >> shift)
            origin = np.int64(keys[i] & mask)
            if is_weighted:
                samples[offset + i], sorted_gains[offset + i] = owners[origin], gains[origin]
            else:
                samples[offset + i] = origin
            # Without a branch: each id of a row moves the row's end on.
            k += np.int64(row != previous)
            new_rows[k], new_starts[k + 1] = row, offset + i + 1
            previous = row
        distinct[s] = k + 1


@njit(nogil=True, cache=True)
def _count_bins(table, sample_offsets, cores, shift, histogram):
    histogram[:] = 0
    first, last = sample_offsets[table], sample_offsets[table + 1]
    for core in range(len(cores)):
        splits = integers(cores[core, 0], sample_offsets[-1] + 1)
        ids = integers(cores[core, 1], splits[-1])
        for i in range(splits[first], splits[last]):
            histogram[ids[i] >> shift] += 1


@njit(nogil=True, cache=True)
def _gather(segment, sample_offsets, cores, weighted, is_weighted, shift, keys, owners, gains):
    """Lists the ids of one segment, core after core.

    A key is the row in the segment, then the sample, or with weights the place in `owners` and `gains`, which hold the
    sample and the gain. The buffers have room for one more: an id of another segment is written, too, and the next one
    over it, for a branch would be guessed wrong half the time.
    """
    table, first_row, rows = segment[TABLE], segment[FIRST_ROW], np.uint64(segment[LAST_ROW] - segment[FIRST_ROW])
    first, last = sample_offsets[table], sample_offsets[table + 1]
    place = 0
    for core in range(len(cores)):
        splits = integers(cores[core, 0], sample_offsets[-1] + 1)
        ids = integers(cores[core, 1], splits[-1])
        core_gains = floats(cores[core, 2], splits[-1])
        for sample in range(first, last):
            for i in range(splits[sample], splits[sample + 1]):
                # Unsigned, a row before the first is beyond the last.
                row = np.uint64(ids[i] - first_row)
                origin = sample - first + core * (last - first)
                if is_weighted:
                    owners[place] = origin
                    gains[place] = core_gains[i] if weighted[core, table] else _ONE
                    origin = place
                keys[place] = (row << shift) | np.uint64(origin)
                place += np.int64(row < rows)


@njit(nogil=True, cache=True)
def _radix_sort(keys, spare, size, shift, bits):
    """Returns (sorted, other buffer): keys[:size] ordered by `bits` bits from `shift` on, stably."""
    passes = max(1, (bits + _DIGIT - 1) // _DIGIT)
    width = np.uint64((bits + passes - 1) // passes)
    mask = (_U1 << width) - _U1
    places = np.zeros((passes, np.int64(mask) + 1), np.int64)
    for k in range(size):
        digits = keys[k] >> shift
        for number in range(passes):
            places[number, np.int64(digits & mask)] += 1
            digits >>= width
    for number in range(passes):
        of_digit = places[number]
        total = 0
        for digit in range(len(of_digit)):
            total, of_digit[digit] = total + of_digit[digit], total
        for k in range(size):
            digit = np.int64((keys[k] >> shift) & mask)
            spare[of_digit[digit]] = keys[k]
            of_digit[digit] += 1
        keys, spare = spare, keys
        shift += width
    return keys, spare
