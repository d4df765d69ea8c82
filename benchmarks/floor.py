"""The least memory traffic that a step needs, with nothing computed: what no engine with these tables can beat."""

from __future__ import annotations

import numpy as np
from numba import njit

from anycore.kernels.pointers import fetch_add, floats, prefetch_record
from anycore.kernels.records import ADDRESS, DIMENSION, STRIDE

_AHEAD = 24
_LINE_FLOATS = 16
_ONE = np.float32(1)


@njit(nogil=True, cache=True)
def gather(counter, tasks, tables, ids, splits, sums):
    """Reads every cache line of the parameters of every id, as a lookup must."""
    total = np.float32(0)
    while True:
        task = fetch_add(counter, 0)
        if task >= len(tasks):
            sums[0] = total  # used, so that the loads are not optimised away
            return
        table, first, last, _ = tasks[task]
        address, stride, dimension = tables[table, ADDRESS], tables[table, STRIDE], tables[table, DIMENSION]
        end = splits[last]
        for i in range(splits[first], end):
            if i + _AHEAD < end:
                prefetch_record(address + ids[i + _AHEAD] * stride, dimension * 4)
            row = floats(address + ids[i] * stride, dimension)
            for d in range(0, dimension, _LINE_FLOATS):
                total += row[d]


@njit(nogil=True, cache=True)
def read_modify_write(counter, tasks, tables, rows):
    """Reads and writes the whole record of every distinct row once, as an update must."""
    while True:
        task = fetch_add(counter, 0)
        if task >= len(tasks):
            return
        table, first, last = tasks[task, 0], tasks[task, 1], tasks[task, 2]
        address, stride = tables[table, ADDRESS], tables[table, STRIDE]
        for k in range(first, last):
            if k + _AHEAD < last:
                prefetch_record(address + rows[k + _AHEAD] * stride, stride)
            record = floats(address + rows[k] * stride, stride // 4)
            for d in range(len(record)):
                record[d] += _ONE
