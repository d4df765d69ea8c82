"""Backward: in one pass the gradients of each row are summed and the optimizer's step is applied to its record."""

from __future__ import annotations

import numpy as np
from numba import njit

from anycore.kernels.pointers import FLOAT_BYTES, call_step, fetch_add, floats, prefetch, prefetch_record
from anycore.kernels.records import ADDRESS, DIMENSION, STRIDE

STEP, ACCUMULATE, EVERY_ROW = range(3)
"""Columns of `optimizers` int64[T, 3]: address of the compiled step; whether the occurrences of a row are summed and
applied once, or applied one by one; whether rows that no id touched are updated too, with a zero gradient."""

_AHEAD = 12
_ONE = np.float32(1)


@njit(nogil=True, cache=True)
def place_rows(places, rows):
    """Writes the addresses of gradient rows; places [n, 4]: first place in `rows`, count, first address, row bytes."""
    for i in range(len(places)):
        for k in range(places[i, 1]):
            rows[places[i, 0] + k] = places[i, 2] + k * places[i, 3]


@njit(nogil=True, cache=True)
def update(
    counter,
    tasks,
    tables,
    optimizers,
    settings,
    rows,
    starts,
    samples,
    gains,
    weighted,
    gradient_rows,
    sample_offsets,
    num_cores,
):
    """Updates the rows of all tasks of `tasks.cut_rows` that this thread draws from `counter`.

    settings float32[T, n] as `bind` lays them out; rows, starts, samples, gains as `sort.sort_rows`; gradient_rows: the
    address of the gradient of each sample row, table after table, in each core after core.
    """
    widest = 0
    for task in range(len(tasks)):
        widest = max(widest, tables[tasks[task, 0], DIMENSION])
    scratch = np.zeros(3 * widest, np.float32)
    # Addresses carry no reference count, which would cost more than the sums.
    total = scratch.ctypes.data
    part = total + widest * FLOAT_BYTES
    zeros = part + widest * FLOAT_BYTES
    while True:
        task = fetch_add(counter, 0)
        if task >= len(tasks):
            # This use of the scratch memory is what keeps it until here.
            return scratch.size
        table, first, last, row, last_row = tasks[task]
        address, stride, dimension = tables[table, ADDRESS], tables[table, STRIDE], tables[table, DIMENSION]
        step, every_row = optimizers[table, STEP], optimizers[table, EVERY_ROW]
        setting = settings[table].ctypes.data
        samples_per_core = sample_offsets[table + 1] - sample_offsets[table]
        gradients = gradient_rows[sample_offsets[table] * num_cores :]
        for k in range(first, min(first + _AHEAD, last)):
            prefetch_record(address + rows[k] * stride, stride)
            prefetch(gradients[samples[starts[k]]], dimension * FLOAT_BYTES)
        for k in range(first, last):
            if k + _AHEAD < last:
                prefetch_record(address + rows[k + _AHEAD] * stride, stride)
                prefetch(gradients[samples[starts[k + _AHEAD]]], dimension * FLOAT_BYTES)
            if every_row:
                for untouched in range(row, rows[k]):
                    call_step(step, address + untouched * stride, zeros, dimension, setting)
                row = rows[k] + 1
            record = address + rows[k] * stride
            if not optimizers[table, ACCUMULATE]:
                for place in range(starts[k], starts[k + 1]):
                    sum_places(total, samples, gains, weighted[table], place, place + 1, gradients, dimension)
                    call_step(step, record, total, dimension, setting)
                continue
            if num_cores == 1:
                sum_places(total, samples, gains, weighted[table], starts[k], starts[k + 1], gradients, dimension)
            else:
                _sum_cores(
                    total,
                    part,
                    samples,
                    gains,
                    weighted[table],
                    starts[k],
                    starts[k + 1],
                    gradients,
                    dimension,
                    samples_per_core,
                )
            call_step(step, record, total, dimension, setting)
        if every_row:
            for untouched in range(row, last_row):
                call_step(step, address + untouched * stride, zeros, dimension, setting)


@njit(nogil=True, cache=True)
def sum_places(total, samples, gains, weighted, first, last, gradients, dimension):
    """Writes Σ gain · gradient over the places first … last - 1, in that order, to the address `total`."""
    target = floats(total, dimension)
    for place in range(first, last):
        gradient = floats(gradients[samples[place]], dimension)
        gain = gains[place] if weighted else _ONE
        if place == first:
            for d in range(dimension):
                target[d] = gain * gradient[d]
        else:
            for d in range(dimension):
                target[d] += gain * gradient[d]


@njit(nogil=True, cache=True)
def _sum_cores(total, part, samples, gains, weighted, first, last, gradients, dimension, samples_per_core):
    """Writes the sum over cores, in their order, of each core's own sum, to the address `total`."""
    start = first
    while start < last:
        core = samples[start] // samples_per_core
        end = start + 1
        while end < last and samples[end] // samples_per_core == core:
            end += 1
        if start == first:
            sum_places(total, samples, gains, weighted, start, end, gradients, dimension)
        else:
            sum_places(part, samples, gains, weighted, start, end, gradients, dimension)
            target, addend = floats(total, dimension), floats(part, dimension)
            for d in range(dimension):
                target[d] += addend[d]
        start = end
