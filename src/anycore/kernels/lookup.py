"""Forward: the rows of each sample, multiplied by their gains and added in the order of the ids."""

from __future__ import annotations

import numpy as np
from numba import njit

from anycore.kernels.pointers import FLOAT_BYTES, fetch_add, floats, prefetch_record
from anycore.kernels.records import ADDRESS, DIMENSION, STRIDE

_AHEAD = 24
_ZERO = np.float32(0)
_ONE = np.float32(1)
_HALF = np.float32(0.5)


@njit(nogil=True, cache=True)
def lookup(counter, tasks, tables, quantization, ids, splits, gains, weighted, outputs):
    """Writes the activations of all tasks that this thread draws from `counter`.

    tasks [n, 4]: table, first and last sample row, activation; outputs [A]: address of sample row 0, were it the
    activation's; quantization [T, 3]: lower limit, upper limit, bucket width (0: none); gains hold for tables
    marked `weighted`.
    """
    while True:
        task = fetch_add(counter, 0)
        if task >= len(tasks):
            return
        table, first, last, activation = tasks[task]
        address, stride, dimension = tables[table, ADDRESS], tables[table, STRIDE], tables[table, DIMENSION]
        lower, upper, width = quantization[table]
        gain = _ONE
        end = splits[last]
        for i in range(splits[first], min(splits[first] + _AHEAD, end)):
            prefetch_record(address + ids[i] * stride, dimension * FLOAT_BYTES)
        for sample in range(first, last):
            output = floats(outputs[activation] + sample * dimension * FLOAT_BYTES, dimension)
            if splits[sample] == splits[sample + 1]:
                for d in range(dimension):
                    output[d] = _ZERO
            for i in range(splits[sample], splits[sample + 1]):
                if i + _AHEAD < end:
                    prefetch_record(address + ids[i + _AHEAD] * stride, dimension * FLOAT_BYTES)
                if weighted[table]:
                    gain = gains[i]
                row = floats(address + ids[i] * stride, dimension)
                if width > _ZERO:
                    _add_quantized(output, gain, row, dimension, lower, upper, width, i == splits[sample])
                elif i == splits[sample]:
                    for d in range(dimension):
                        output[d] = gain * row[d]
                else:
                    for d in range(dimension):
                        output[d] += gain * row[d]


@njit(nogil=True, cache=True)
def _add_quantized(output, gain, row, dimension, lower, upper, width, overwrite):
    # Source: SimulatedQuantization, optimization_parameters.proto: clip, then round to the nearest bucket.
    for d in range(dimension):
        clipped = min(max(row[d], lower), upper)
        value = gain * (np.floor((clipped - lower) / width + _HALF) * width + lower)
        output[d] = value if overwrite else output[d] + value
