"""base ** exponent of float32, by arithmetic that a compiler vectorises; a library takes one number at a time.

2 ** (exponent · log₂ |base|), in one of two ways. Exponents up to 1 in size, those of FTRL and of AdagradMomentum, take
float32, sixteen at once where a processor can, and err by up to 3.5 units in the last place. Others take float64, where
every float32 is a normal number, and err by up to 0.51.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from anycore.kernels.bits import bits, of_bits


def _multiply_add(dtype):
    """Code generator for a · b + c, rounded once: the same bits on every processor, with or without the instruction."""

    def generate(context, builder, signature, arguments):
        return builder.fma(*arguments)

    return dtype(dtype, dtype, dtype), generate


@intrinsic
def _fma(typing_context, a, b, c):
    return _multiply_add(types.float64)


@intrinsic
def _fma32(typing_context, a, b, c):
    return _multiply_add(types.float32)


_FRACTION_BITS = 52
_FRACTION = (1 << _FRACTION_BITS) - 1
_BIAS = 1023
_ONE_BITS = _BIAS << _FRACTION_BITS
_SQRT2 = 2.0**0.5
_LOG2_E = 1.4426950408889634
_LN_2 = 0.6931471805599453
_WHOLE_BITS = 0x4330000000000000
"""Of 2**52, in whose last bits a small integer stands as it is."""
_WHOLE = 2.0**52
_ROUNDING = 1.5 * 2.0**52
"""Added to a small float64 it leaves the nearest integer in the last bits."""
_FAR = 300.0
"""Exponents of two beyond this are infinity or zero in float32."""


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def _log2(x):
    """log₂ of a positive normal float64, to 3e-11; of 0 and infinity a number beyond ±1022."""
    pattern = bits(x)
    exponent = of_bits(((pattern >> _FRACTION_BITS) & 0x7FF) | _WHOLE_BITS) - _WHOLE - _BIAS
    fraction = of_bits((pattern & _FRACTION) | _ONE_BITS)
    is_high = fraction > _SQRT2
    fraction = fraction * 0.5 if is_high else fraction
    exponent = exponent + 1.0 if is_high else exponent
    # log((1 + f)/(1 - f)) = 2·(f + f³/3 + f⁵/5 + …) with |f| <= 0.172
    f = (fraction - 1.0) / (fraction + 1.0)
    s = f * f
    series = _fma(s, _fma(s, _fma(s, _fma(s, _fma(s, 1 / 11, 1 / 9), 1 / 7), 1 / 5), 1 / 3), 1.0)
    return _fma(2.0 * _LOG2_E * f, series, exponent)


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def _exp2(t):
    """2 ** t of a float64 up to ±1000, to a relative 2e-10."""
    rounded = t + _ROUNDING
    r = (t - (rounded - _ROUNDING)) * _LN_2
    # eʳ with |r| <= 0.347
    series = _fma(r, _fma(r, _fma(r, _fma(r, 1 / 40320, 1 / 5040), 1 / 720), 1 / 120), 1 / 24)
    series = _fma(r, _fma(r, _fma(r, _fma(r, series, 1 / 6), 0.5), 1.0), 1.0)
    return series * of_bits((bits(rounded) + _BIAS) << _FRACTION_BITS)


def _singles(*numbers):
    return tuple(np.float32(number) for number in numbers)


_0, _HALF, _1, _SQRT2_32, _TINY, _UP = _singles(0, 0.5, 1, 2**0.5, 2.0**-126, 2.0**24)
_UP_EXPONENT = np.float32(24)
_L1, _L3, _L5, _L7 = _singles(*(2 * _LOG2_E / k for k in (1, 3, 5, 7)))
_E1, _E2, _E3, _E4, _E5, _E6 = _singles(*(_LN_2**k / math.factorial(k) for k in range(1, 7)))
_FRACTION_32, _ONE_BITS_32, _HIGH_BITS = np.int32(0x7FFFFF), np.int32(127 << 23), np.int32(-4096)
_EXPONENT_32, _BIAS_32, _FRACTION_BITS_32 = np.int32(0xFF), np.int32(127), np.int32(23)


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def _power_of_two(n):
    return of_bits(np.int32((np.int32(n) + _BIAS_32) << _FRACTION_BITS_32))


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def _raised_single(x, y):
    """x ** y of a positive float32 and |y| <= 1, in float32: the exponent of x is multiplied without an error."""
    is_tiny = x < _TINY
    pattern = bits(x * _UP if is_tiny else x)
    exponent = np.float32(((pattern >> _FRACTION_BITS_32) & _EXPONENT_32) - _BIAS_32)
    exponent = exponent - _UP_EXPONENT if is_tiny else exponent
    fraction = of_bits(np.int32((pattern & _FRACTION_32) | _ONE_BITS_32))
    is_high = fraction > _SQRT2_32
    fraction = fraction * _HALF if is_high else fraction
    exponent = exponent + _1 if is_high else exponent
    f = (fraction - _1) / (fraction + _1)
    s = f * f
    log2 = f * _fma32(s, _fma32(s, _fma32(s, _L7, _L5), _L3), _L1)
    # Twelve bits of y times the eight of the exponent fit into a float32.
    high = of_bits(np.int32(bits(y) & _HIGH_BITS))
    product = high * exponent
    n = np.rint(product)
    r = (product - n) + _fma32(y - high, exponent, y * log2)
    more = np.rint(r)
    r, n = r - more, n + more
    series = _fma32(r, _fma32(r, _fma32(r, _fma32(r, _fma32(r, _E6, _E5), _E4), _E3), _E2), _E1)
    half = np.floor(n * _HALF)
    return _fma32(r, series, _1) * _power_of_two(half) * _power_of_two(n - half)


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def raised(base, exponent):
    """base ** exponent with NumPy's meaning for zeros, infinities, NaN and negative bases; exponent is a constant."""
    y = np.float64(exponent)
    if abs(exponent) <= _1:
        size = _raised_single(abs(base), exponent)
    else:
        size = np.float32(_exp2(min(max(y * _log2(np.float64(abs(base))), -_FAR), _FAR)))
    if y == 0.0:
        return np.float32(1.0)
    # The logarithm of these two is no infinity here, and a small exponent would bring it back among the numbers.
    if y > 0.0:
        size = abs(base) if base == np.float32(0.0) or abs(base) == np.float32(np.inf) else size
    else:
        size = np.float32(np.inf) if base == np.float32(0.0) else size
        size = np.float32(0.0) if abs(base) == np.float32(np.inf) else size
    negative = base < np.float32(0.0)
    if y == np.floor(y):
        if y != 2.0 * np.floor(0.5 * y):
            size = np.copysign(size, base)
    else:
        size = np.float32(np.nan) if negative and abs(base) < np.float32(np.inf) else size
    return base if base != base else size
