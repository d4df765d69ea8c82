"""Work cut into tasks of about equal cost, each a range of one table, so that neither one huge table nor many small
ones leave a thread idle."""

from __future__ import annotations

import numpy as np
from numba import njit

from anycore.kernels.records import DIMENSION
from anycore.kernels.sort import COUNT, FIRST_ROW, LAST_ROW, OFFSET, TABLE
from anycore.kernels.update import EVERY_ROW

_TASK_FLOATS = 1 << 18
"""Floats moved by one task: a megabyte, a few hundred microseconds."""
_ROW_COST = 2
"""What updating a row costs beside adding one gradient to its sum."""


@njit(nogil=True, cache=True)
def cut_samples(tables, activations, splits):
    """Returns lookup tasks int64[n, 4]: table, first and last sample row, activation.

    activations int64[A, 3]: table, first and last sample row; every sample row is in one task, which writes one array.
    """
    count = 0
    for activation in range(len(activations)):
        count += _sample_pieces(tables, activations[activation], splits)
    tasks = np.empty((count, 4), np.int64)
    n = 0
    for activation in range(len(activations)):
        table, first, last = activations[activation]
        pieces = _sample_pieces(tables, activations[activation], splits)
        begin = first
        for piece in range(pieces):
            end = last
            if piece + 1 < pieces:
                part = _part(splits[first] + first, splits[last] + last, piece + 1, pieces)
                end = _search(splits, 1, begin, last, part)
            if begin < end:
                tasks[n, 0], tasks[n, 1], tasks[n, 2], tasks[n, 3] = table, begin, end, activation
                n += 1
            begin = end
    return tasks[:n]


@njit(nogil=True, cache=True)
def cut_rows(tables, optimizers, segments, distinct, rows, starts):
    """Returns update tasks int64[n, 5]: table, first and last place of a distinct row, first and last row.

    The arguments are what `sort.sort_rows` takes and makes. The last two columns hold where the optimizer updates every
    row; such a table is cut by rows, another by ids.
    """
    count = 0
    for s in range(len(segments)):
        count += _row_pieces(s, tables, optimizers, segments, distinct)
    tasks = np.empty((count, 5), np.int64)
    n = 0
    for s in range(len(segments)):
        table = segments[s, TABLE]
        every_row = optimizers[table, EVERY_ROW]
        first = segments[s, OFFSET] + s
        last = first + distinct[s]
        pieces = _row_pieces(s, tables, optimizers, segments, distinct)
        begin, begin_row = first, segments[s, FIRST_ROW]
        for piece in range(1, pieces + 1):
            end, end_row = last, segments[s, LAST_ROW]
            if piece < pieces and every_row:
                end_row = _part(segments[s, FIRST_ROW], segments[s, LAST_ROW], piece, pieces)
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
def _sample_pieces(tables, activation, splits):
    table, first, last = activation
    return _pieces(splits[last] - splits[first] + last - first, tables[table, DIMENSION])


@njit(nogil=True, cache=True)
def _row_pieces(s, tables, optimizers, segments, distinct):
    table = segments[s, TABLE]
    rows = segments[s, LAST_ROW] - segments[s, FIRST_ROW] if optimizers[table, EVERY_ROW] else distinct[s]
    return _pieces(segments[s, COUNT] + _ROW_COST * rows, tables[table, DIMENSION])


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
