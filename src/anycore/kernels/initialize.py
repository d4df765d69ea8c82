"""Starting values: every one a function of (key, row, column) alone, computed without a branch.

A counter-based hash gives the bits; after it only +, -, * and / of IEEE float32 are used, which give the same bits on
every machine, as logarithms and cosines do not.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from anycore.kernels.pointers import floats

# Source: Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014 (the SplitMix64 constants).
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)
_SHIFT_1 = np.uint64(30)
_SHIFT_2 = np.uint64(27)
_SHIFT_3 = np.uint64(31)

_ONE = np.float32(1)
_HALF = np.float32(0.5)
_DRAW_UNIT = np.float32(2.0**-23)

# Inverse of the normal distribution truncated at 2 standard deviations, for t in (-1, 1): t·P(r)/Q(r) with r = 1 - t².
# Iteratively reweighted least squares on 400 Chebyshev nodes in r, values from mpmath with 40 digits; P(0)/Q(0) = 2
# kept exact, coefficients rounded to float32 one after the other with the rest fitted anew. Greatest absolute error
# over all 2**24 values that t can take: 7.4e-8 in exact arithmetic, 5.7e-7 (mean 6.1e-8) in float32. No coefficient is
# negative, so nothing cancels.
_P0 = np.float32(2.0)
_P1 = np.float32(25.068186)
_P2 = np.float32(80.922806)
_P3 = np.float32(63.14723)
_P4 = np.float32(5.552248)
_Q1 = np.float32(14.243937)
_Q2 = np.float32(56.334053)
_Q3 = np.float32(63.001453)
_Q4 = np.float32(13.119393)


@njit(nogil=True, cache=True)
def mix(h):
    """Scatters the bits of a uint64, one-to-one."""
    h = (h ^ (h >> _SHIFT_1)) * _MULTIPLIER_1
    h = (h ^ (h >> _SHIFT_2)) * _MULTIPLIER_2
    return h ^ (h >> _SHIFT_3)


@njit(nogil=True, cache=True)
def derive(key, index):
    """The key of member `index` (int64) of the sequence that belongs to `key`."""
    return mix(key + (np.uint64(index) + np.uint64(1)) * _GOLDEN)


@njit(nogil=True, cache=True)
def symmetric(key):
    """One of 2**24 equally likely, equally spaced float32 in (-1, 1), none of them 0, exact."""
    return (np.float32(np.int32(np.int64(key) >> 40)) + _HALF) * _DRAW_UNIT


@njit(nogil=True, cache=True, error_model="numpy")
def normal_from_symmetric(t):
    """The quantile of the truncated normal distribution that lies at (t + 1)/2, in [-2, 2]."""
    r = (_ONE - t) * (_ONE + t)
    numerator = (((_P4 * r + _P3) * r + _P2) * r + _P1) * r + _P0
    denominator = (((_Q4 * r + _Q3) * r + _Q2) * r + _Q1) * r + _ONE
    return t * numerator / denominator


@njit(nogil=True, cache=True)
def constant(address, stride, rows, dimension, key, first_row, row_step, value):
    """Fills `rows` records of `dimension` float32, `stride` bytes apart, with `value`, whatever their keys."""
    for i in range(rows):
        row = floats(address + i * stride, dimension)
        for d in range(dimension):
            row[d] = value


@njit(nogil=True, cache=True)
def uniform(address, stride, rows, dimension, key, first_row, row_step, low, high):
    """Fills `rows` records of `dimension` float32, `stride` bytes apart, with values of [low, high]."""
    middle = _HALF * low + _HALF * high
    half_width = _HALF * high - _HALF * low
    for i in range(rows):
        row = floats(address + i * stride, dimension)
        row_key = derive(key, first_row + i * row_step)
        for d in range(dimension):
            row[d] = min(max(middle + half_width * symmetric(derive(row_key, d)), low), high)


@njit(nogil=True, cache=True, error_model="numpy")
def truncated_normal(address, stride, rows, dimension, key, first_row, row_step, mean, stddev):
    """Fills `rows` records of `dimension` float32, `stride` bytes apart, with values of mean ± 2·stddev."""
    for i in range(rows):
        row = floats(address + i * stride, dimension)
        row_key = derive(key, first_row + i * row_step)
        for d in range(dimension):
            row[d] = mean + stddev * normal_from_symmetric(symmetric(derive(row_key, d)))
