"""Enqueued ids, whatever their kind, as one list: for each sample row its ids and their gains.

Three steps: `measure` checks the layout and counts the ids of every sample row, `accumulate` turns counts into splits,
`fill` checks and copies ids and weights and turns weights into gains. Each entry of an enqueue call is one row of an
int64 array whose columns are named here; an entry that is refused is reported in `errors`, and nothing else is said.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from anycore.kernels.pointers import fetch_add, floats, integers

KIND, IDS, SIZE, WEIGHTS, INDEX, INDEX_COLUMNS, INPUT_ROWS = range(7)
"""What came in: its kind; addresses of ids int64[SIZE], weights float32[SIZE] (0: none) and index int64."""
TABLE, ROWS, FIRST_SAMPLE, CELLS, BLOCK, BLOCK_STRIDE, SEQUENCE, COMBINER = range(7, 15)
"""Where it goes: cell c of CELLS is sample row FIRST_SAMPLE + c // BLOCK * BLOCK_STRIDE + c % BLOCK; with SEQUENCE > 0
position p of input row r is cell r * SEQUENCE + p."""
ENTRY_COLUMNS = 15

DENSE, RAGGED, SPARSE = range(3)
"""KIND: no index; row splits [INPUT_ROWS + 1]; rows [SIZE, INDEX_COLUMNS], the position in the second column."""

SUM, MEAN, SQRTN = range(3)

OK, ID, ROW, ROW_ORDER, POSITION, FIRST_SPLIT, SPLIT_ORDER, LAST_SPLIT, WEIGHT = range(9)
"""errors[entry] = (one of these, position in the input, value when it is an integer)."""

_ZERO = np.float32(0)
_ONE = np.float32(1)


@njit(nogil=True, cache=True)
def measure(counter, entries, splits, errors):
    """Counts ids: splits[s + 1] = number of ids of sample row s; splits must be zero before."""
    while True:
        e = fetch_add(counter, 0)
        if e >= len(entries):
            return
        entry = entries[e]
        if entry[KIND] == RAGGED:
            _check_splits(entry, errors[e])
        if errors[e, 0] == OK:
            if entry[KIND] == RAGGED and entry[SEQUENCE] == 0:
                index = integers(entry[INDEX], entry[INPUT_ROWS] + 1)
                for row in range(entry[INPUT_ROWS]):
                    splits[_sample(entry, row) + 1] = index[row + 1] - index[row]
            else:
                _count(entry, splits, errors[e])


@njit(nogil=True, cache=True)
def accumulate(counts):
    """Turns counts into splits in place; returns the number of ids."""
    total = 0
    for k in range(len(counts)):
        total += counts[k]
        counts[k] = total
    return total


@njit(nogil=True, cache=True)
def fill(counter, entries, splits, ids, gains, weighted, errors):
    """Copies ids to their sample rows, and to `gains`, where the table is `weighted`, the combiner's factors."""
    while True:
        e = fetch_add(counter, 0)
        if e >= len(entries):
            return
        entry = entries[e]
        _place(entry, splits, ids, gains, weighted[entry[TABLE]], errors[e])
        if errors[e, 0] == OK and entry[WEIGHTS] != 0:
            _check_weights(entry, errors[e])
        if errors[e, 0] == OK and weighted[entry[TABLE]]:
            for cell in range(entry[CELLS]):
                sample = _sample(entry, cell)
                _combine(gains, splits[sample], splits[sample + 1], entry[COMBINER])


@njit(nogil=True, cache=True)
def _report(error, code, position, value):
    error[0], error[1], error[2] = code, position, value


@njit(nogil=True, cache=True)
def _sample(entry, cell):
    if entry[BLOCK] == entry[BLOCK_STRIDE]:
        return entry[FIRST_SAMPLE] + cell
    return entry[FIRST_SAMPLE] + cell // entry[BLOCK] * entry[BLOCK_STRIDE] + cell % entry[BLOCK]


@njit(nogil=True, cache=True)
def _check_splits(entry, error):
    index = integers(entry[INDEX], entry[INPUT_ROWS] + 1)
    if index[0] != 0:
        _report(error, FIRST_SPLIT, 0, index[0])
        return
    for row in range(entry[INPUT_ROWS]):
        if index[row + 1] < index[row]:
            _report(error, SPLIT_ORDER, row + 1, index[row + 1])
            return
    if index[entry[INPUT_ROWS]] != entry[SIZE]:
        _report(error, LAST_SPLIT, entry[INPUT_ROWS], index[entry[INPUT_ROWS]])


@njit(nogil=True, cache=True)
def _check_ids(entry, ids, error):
    low, high = np.int64(0), np.int64(0)
    for i in range(len(ids)):
        low = min(low, ids[i])
        high = max(high, ids[i])
    if low < 0 or high >= entry[ROWS]:
        for i in range(len(ids)):
            if ids[i] < 0 or ids[i] >= entry[ROWS]:
                _report(error, ID, i, ids[i])
                return


@njit(nogil=True, cache=True)
def _check_weights(entry, error):
    weights = floats(entry[WEIGHTS], entry[SIZE])
    for i in range(len(weights)):
        if not np.isfinite(weights[i]):
            _report(error, WEIGHT, i, 0)
            return


@njit(nogil=True, cache=True)
def _walk(entry, index, i, row, start):
    """Returns (input row of id i, place of that row's first id, position of i in its row), from those of i - 1."""
    position = i - start
    if entry[KIND] == DENSE:
        row, start, position = i, i, np.int64(0)
    elif entry[KIND] == RAGGED:
        while index[row + 1] <= i:
            row += 1
            start = index[row]
        position = i - start
    else:
        if index[i * entry[INDEX_COLUMNS]] != row:
            row, start, position = index[i * entry[INDEX_COLUMNS]], i, np.int64(0)
        if entry[SEQUENCE] > 0 and entry[INDEX_COLUMNS] > 1:
            position = index[i * entry[INDEX_COLUMNS] + 1]
    return row, start, position


@njit(nogil=True, cache=True)
def _index(entry):
    size = entry[INPUT_ROWS] + 1 if entry[KIND] == RAGGED else entry[SIZE] * entry[INDEX_COLUMNS]
    return integers(entry[INDEX], size)


@njit(nogil=True, cache=True)
def _count(entry, splits, error):
    index = _index(entry)
    row, start, previous = np.int64(0), np.int64(0), np.int64(-1)
    for i in range(entry[SIZE]):
        row, start, position = _walk(entry, index, i, row, start)
        if row < 0 or row >= entry[INPUT_ROWS]:
            _report(error, ROW, i, row)
            return
        if position < 0:
            _report(error, POSITION, i, position)
            return
        cell = row
        if entry[SEQUENCE] > 0:
            # Positions beyond the length keep their order too: they are dropped, not forgiven.
            cell = row * entry[SEQUENCE] + min(position, entry[SEQUENCE])
        if cell < previous:
            _report(error, ROW_ORDER, i, row)
            return
        previous = cell
        if entry[SEQUENCE] == 0 or position < entry[SEQUENCE]:
            splits[_sample(entry, cell) + 1] += 1


@njit(nogil=True, cache=True)
def _place(entry, splits, ids, gains, weighted, error):
    """Copies the ids, and as gains their weights or ones, to the sample rows.

    The copies are what is checked: another thread of the caller may write the source meanwhile.
    """
    source = integers(entry[IDS], entry[SIZE])
    if entry[SEQUENCE] == 0 and entry[BLOCK] == entry[BLOCK_STRIDE]:
        first = splits[entry[FIRST_SAMPLE]]
        for i in range(len(source)):
            ids[first + i] = source[i]
        _check_ids(entry, ids[first : first + len(source)], error)
        if weighted:
            _place_weights(entry, gains, first)
        return
    index = _index(entry)
    row, start, previous, place = np.int64(0), np.int64(0), np.int64(-1), np.int64(0)
    for i in range(entry[SIZE]):
        row, start, position = _walk(entry, index, i, row, start)
        new_id = source[i]
        if new_id < 0 or new_id >= entry[ROWS]:
            _report(error, ID, i, new_id)
            return
        if entry[SEQUENCE] == 0 or position < entry[SEQUENCE]:
            cell = row * entry[SEQUENCE] + position if entry[SEQUENCE] > 0 else row
            if cell < previous or cell >= entry[CELLS]:
                _report(error, ROW, i, row)
                return
            place = place + 1 if cell == previous else splits[_sample(entry, cell)]
            previous = cell
            if place >= splits[_sample(entry, cell) + 1]:
                _report(error, ROW, i, row)
                return
            ids[place] = new_id
            if weighted:
                gains[place] = floats(entry[WEIGHTS], entry[SIZE])[i] if entry[WEIGHTS] != 0 else _ONE


@njit(nogil=True, cache=True)
def _place_weights(entry, gains, first):
    if entry[WEIGHTS] == 0:
        gains[first : first + entry[SIZE]] = _ONE
    else:
        gains[first : first + entry[SIZE]] = floats(entry[WEIGHTS], entry[SIZE])


@njit(nogil=True, cache=True, error_model="numpy")
def _combine(gains, first, last, combiner):
    """Turns the weights of one sample row into the factors of its combiner; a zero denominator gives zeros.

    Source: tpu_embedding enqueue ops: sum w, mean w / Σw, sqrtn w / √Σw², before equal ids are merged.
    """
    if combiner == SUM:
        return
    # In float64 no square of a float32 overflows or vanishes.
    denominator = 0.0
    for i in range(first, last):
        weight = np.float64(gains[i])
        denominator += weight if combiner == MEAN else weight * weight
    if combiner == SQRTN:
        denominator = np.sqrt(denominator)
    for i in range(first, last):
        gains[i] = np.float32(gains[i] / denominator) if denominator != 0.0 else _ZERO
