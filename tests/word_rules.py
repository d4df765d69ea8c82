"""Rules that together use every word, for a backend that compiles rules to be asked what each word means.

They stand in a module of their own, for another process must find them by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from anycore.optimizers import Optimizer, Slot
from anycore.optimizers.declarations import compiled
from anycore.optimizers.vocabulary import (
    ONE,
    TWO,
    ZERO,
    absolute,
    arccos,
    arccosh,
    arcsin,
    arcsinh,
    arctan2,
    arctanh,
    bits,
    cbrt,
    ceil,
    cos,
    cosh,
    erf,
    exp,
    expm1,
    float32,
    float64,
    floor,
    fmod,
    int32,
    int64,
    log,
    log1p,
    maximum,
    minimum,
    of_bits,
    power,
    quotient,
    rint,
    sign,
    sin,
    sinh,
    sqrt,
    tanh,
    where,
)

LARGE = np.float32(2**24)


def exact(w: Any, g: Any, lr: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, h: Any, i: Any, flag: Any) -> Any:
    """Words of which backends agree in every bit."""
    chosen = where(flag, where(w < g, w, g), ZERO)
    ratio = where(g > ZERO, ONE, -TWO)
    return absolute(w), sign(w), minimum(w, g), maximum(w, g), chosen, ceil(w), floor(w), ratio, sqrt(w)


@dataclass(frozen=True, kw_only=True)
class Exact(Optimizer):
    flag: bool = True

    rule = staticmethod(exact)
    slots = tuple(Slot(name) for name in "abcdefhi")
    wire_name = "exact"


def rounded(w: Any, g: Any, lr: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, exponent: Any) -> Any:
    """Words that every backend rounds in its own way."""
    return exp(w), log(w), sin(w), cos(w), erf(w), power(w, exponent), absolute(w) ** g


@dataclass(frozen=True, kw_only=True)
class Rounded(Optimizer):
    exponent: float = compiled(0.3)

    rule = staticmethod(rounded)
    slots = tuple(Slot(name) for name in "abcdef")
    wire_name = "rounded"


def typed(w: Any, g: Any, lr: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> Any:
    """Words that make other types."""
    i = int32(where(absolute(w) < LARGE, w, LARGE))
    j = int32(where(absolute(g) < LARGE, where(absolute(g) < TWO, TWO, g), LARGE))
    shifted = of_bits(int32(bits(w) ^ bits(g)))
    product = float64(i) * float64(j)
    return (
        float32(i),
        float32(quotient(i, j)),
        float32(int64(i) * int64(j)),
        float32(sqrt(absolute(product))),
        float32(of_bits(bits(product))),
        of_bits(bits(w)),
        shifted,
    )


@dataclass(frozen=True, kw_only=True)
class Typed(Optimizer):
    rule = staticmethod(typed)
    slots = tuple(Slot(name) for name in "abcdef")
    wire_name = "typed"


def of_libraries(w: Any, g: Any, lr: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, h: Any, i: Any) -> Any:
    """Words that Triton has from a library for GPUs, and its interpreter from NumPy."""
    inverse = arctanh(where(absolute(w) < TWO, arcsin(w), arccosh(w)))
    hyperbolic = where(g < ZERO, sinh(w), where(g < ONE, cosh(w), arcsinh(w)))
    return (
        arctan2(w, g),
        cbrt(w),
        expm1(w),
        fmod(w, g),
        log1p(w),
        rint(w),
        where(g < ONE, tanh(w), arccos(w)),
        (inverse),
        hyperbolic,
    )


@dataclass(frozen=True, kw_only=True)
class OfLibraries(Optimizer):
    rule = staticmethod(of_libraries)
    slots = tuple(Slot(name) for name in "abcdefhi")
    wire_name = "of_libraries"


@dataclass(frozen=True, kw_only=True)
class Nameless(Optimizer):
    rule = staticmethod(lambda w, g, lr: (w - lr * g,))
    wire_name = "nameless"
