"""Backward: the gradients of each row are summed and the optimizer is applied to the row's record, in one pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from anycore.kernels.pointers import FLOAT_BYTES, fetch_add, floats, prefetch
from anycore.kernels.records import ADDRESS, DIMENSION, STRIDE

_AHEAD = 8
_ZERO = np.float32(0)
_ONE = np.float32(1)


@njit(nogil=True, cache=True)
def place_rows(places, rows):
    """Writes the addresses of gradient rows; places [n, 4]: first place in `rows`, count, first address, row bytes."""
    for i in range(len(places)):
        for k in range(places[i, 1]):
            rows[places[i, 0] + k] = places[i, 2] + k * places[i, 3]


@njit(nogil=True)
def _sum_core(target, samples, gains, weighted, first, last, gradient_rows, dimension):
    """Writes Σ gain · gradient of the places first … last - 1, in that order, into `target`."""
    for place in range(first, last):
        gradient = floats(gradient_rows[samples[place]], dimension)
        gain = gains[place] if weighted else _ONE
        if place == first:
            for d in range(dimension):
                target[d] = gain * gradient[d]
        else:
            for d in range(dimension):
                target[d] += gain * gradient[d]


@njit(nogil=True)
def _core_end(samples, first, last, samples_per_core):
    end = first + 1
    while end < last and samples[end] // samples_per_core == samples[first] // samples_per_core:
        end += 1
    return end


def make_update(apply: Callable[..., Any], *, accumulate: bool, every_row: bool) -> Any:
    """Returns a compiled update of all tables that share an optimizer.

    `apply(record address, gradient, dimension, settings)` updates one row. With `accumulate` it is called once a row
    with the canonical sum: in core order, of each core's own sum in sample order; without, once an occurrence in that
    order. With `every_row`, rows that no id touched get a gradient of zero.

    The update's arguments: tasks of `tasks.cut_rows`; `rows`, `starts`, `samples` and `gains` of `sort.sort_rows`;
    gradient_rows int64[samples]: address of the gradient of each sample row, table t's from gradient_offsets[t] on, core
    after core with samples_per_core[t] each; settings float32[T, n].
    """

    @njit(nogil=True, error_model="numpy")
    def update(
        counter,
        tasks,
        tables,
        rows,
        starts,
        samples,
        gains,
        weighted,
        gradient_rows,
        gradient_offsets,
        samples_per_core,
        num_cores,
        settings,
    ):
        widest = 0
        for task in range(len(tasks)):
            widest = max(widest, tables[tasks[task, 0], DIMENSION])
        scratch = np.zeros(3 * widest, np.float32)
        # Views by address carry no reference count, which would cost more than the sums.
        total = floats(scratch.ctypes.data, widest)
        part = floats(scratch.ctypes.data + widest * FLOAT_BYTES, widest)
        untouched = floats(scratch.ctypes.data + 2 * widest * FLOAT_BYTES, widest)
        while True:
            task = fetch_add(counter, 0)
            if task >= len(tasks):
                return
            table, first, last, row, last_row = tasks[task]
            address, stride, dimension = tables[table, ADDRESS], tables[table, STRIDE], tables[table, DIMENSION]
            gradients = gradient_rows[gradient_offsets[table] :]
            for k in range(first, last):
                if k + _AHEAD < last:
                    prefetch(address + rows[k + _AHEAD] * stride, stride)
                if every_row:
                    for skipped in range(row, rows[k]):
                        apply(address + skipped * stride, untouched, dimension, settings[table])
                    row = rows[k] + 1
                begin, end = starts[k], starts[k + 1]
                while begin < end:
                    stop = begin + 1
                    if accumulate:
                        stop = _core_end(samples, begin, end, samples_per_core[table]) if num_cores > 1 else end
                    if begin == starts[k] or not accumulate:
                        _sum_core(total, samples, gains, weighted[table], begin, stop, gradients, dimension)
                    else:
                        _sum_core(part, samples, gains, weighted[table], begin, stop, gradients, dimension)
                        for d in range(dimension):
                            total[d] += part[d]
                    if stop == end or not accumulate:
                        apply(address + rows[k] * stride, total, dimension, settings[table])
                    begin = stop
            if every_row:
                for skipped in range(row, last_row):
                    apply(address + skipped * stride, untouched, dimension, settings[table])

    return update
