"""Work cut into tasks of about equal cost, each a range of one table, so that neither one huge table nor many small
ones leave a thread idle."""

from __future__ import annotations

import numpy as np
from numba import njit

from anycore.kernels.records import DIMENSION, ROWS
from anycore.kernels.update import EVERY_ROW

_TASK_FLOATS = 1 << 18
"""Floats moved by one task: a megabyte, a few hundred microseconds."""
_ROW_COST = 2
"""What updating a row costs beside adding one gradient to its sum."""


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
                part = _part(splits[first] + first, splits[last] + last, piece + 1, pieces)
                end = _search(splits, 1, begin, last, part)
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
                end = _search(rows, 0, begin, last, end_row)
            elif piece < pieces:
                part = _part(starts[first] + _ROW_COST * first, starts[last] + _ROW_COST * last, piece, pieces)
                end = _search(starts, _ROW_COST, begin, last, part)
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
    return _pieces(ids + _ROW_COST * rows, tables[table, DIMENSION])


@njit(nogil=True, cache=True)
def _pieces(vectors, dimension):
    return max(1, vectors * dimension // _TASK_FLOATS)


@njit(nogil=True, cache=True)
def _part(low, high, piece, pieces):
    return low + (high - low) * piece // pieces


@njit(nogil=True, cache=True)
def _search(ascending, weight, low, high, value):
    """Returns the first place k in [low, high) with ascending[k] + weight * k >= value, or high."""
    while low < high:
        middle = (low + high) // 2
        if ascending[middle] + weight * middle < value:
            low = middle + 1
        else:
            high = middle
    return low
