"""Work cut into tasks of about equal cost, each a range of one table, so that neither one huge table nor many small
ones leave a thread idle."""

from __future__ import annotations

import numpy as np
from numba import njit

from anycore.kernels.records import DIMENSION, ROWS
from anycore.kernels.update import EVERY_ROW

_TASK_FLOATS = 1 << 18
"""Floats moved by one task: a megabyte, a few hundred microseconds."""


@njit(nogil=True, cache=True)
def cut_samples(tables, sample_offsets, splits):
    """Returns lookup tasks int64[n, 3]: table, first and last sample row; every sample row is in one task."""
    tasks = np.empty((_count_pieces(tables, sample_offsets, splits), 3), np.int64)
    n = 0
    for table in range(len(tables)):
        first, last = sample_offsets[table], sample_offsets[table + 1]
        pieces = _pieces(splits[last] - splits[first] + last - first, tables[table, DIMENSION])
        begin = first
        for piece in range(pieces):
            end = last
            if piece + 1 < pieces:
                end = _search(splits, begin, last, _part(splits[first], splits[last], piece + 1, pieces))
            if begin < end:
                tasks[n, 0], tasks[n, 1], tasks[n, 2] = table, begin, end
                n += 1
            begin = end
    return tasks[:n]


@njit(nogil=True, cache=True)
def cut_rows(tables, optimizers, firsts, distinct, rows, starts):
    """Returns update tasks int64[n, 5]: table, first and last distinct row, first and last row.

    firsts [T]: place of a table's first distinct row. The last two columns hold where the optimizer updates
    every row; such a table is cut by rows, another by ids.
    """
    count = 0
    for table in range(len(tables)):
        count += _row_pieces(table, tables, optimizers, firsts, distinct, starts)
    tasks = np.empty((count, 5), np.int64)
    n = 0
    for table in range(len(tables)):
        every_row = optimizers[table, EVERY_ROW]
        first, last = firsts[table], firsts[table] + distinct[table]
        pieces = _row_pieces(table, tables, optimizers, firsts, distinct, starts)
        begin, begin_row = first, np.int64(0)
        for piece in range(1, pieces + 1):
            end, end_row = last, tables[table, ROWS]
            if piece < pieces and every_row:
                end_row = _part(0, tables[table, ROWS], piece, pieces)
                end = _search(rows, begin, last, end_row)
            elif piece < pieces:
                end = _search(starts, begin, last, _part(starts[first], starts[last], piece, pieces))
            if begin < end or (every_row and begin_row < end_row):
                tasks[n, 0], tasks[n, 1], tasks[n, 2], tasks[n, 3], tasks[n, 4] = table, begin, end, begin_row, end_row
                n += 1
            begin, begin_row = end, end_row
    return tasks[:n]


@njit(nogil=True, cache=True)
def _count_pieces(tables, sample_offsets, splits):
    count = 0
    for table in range(len(tables)):
        first, last = sample_offsets[table], sample_offsets[table + 1]
        count += _pieces(splits[last] - splits[first] + last - first, tables[table, DIMENSION])
    return count


@njit(nogil=True, cache=True)
def _row_pieces(table, tables, optimizers, firsts, distinct, starts):
    ids = starts[firsts[table] + distinct[table]] - starts[firsts[table]]
    rows = tables[table, ROWS] if optimizers[table, EVERY_ROW] else distinct[table]
    return _pieces(ids + 2 * rows, tables[table, DIMENSION])


@njit(nogil=True, cache=True)
def _pieces(vectors, dimension):
    return max(1, vectors * dimension // _TASK_FLOATS)


@njit(nogil=True, cache=True)
def _part(low, high, piece, pieces):
    return low + (high - low) * piece // pieces


@njit(nogil=True, cache=True)
def _search(ascending, low, high, value):
    """Returns the first place in [low, high) whose entry is >= value, or high."""
    while low < high:
        middle = (low + high) // 2
        if ascending[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low
