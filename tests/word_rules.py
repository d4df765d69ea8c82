"""Rules that together use every word, for a backend that compiles rules to be asked what each word means.

They stand in a module of their own, for another process must find them by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anycore.optimizers import Optimizer, Slot
from anycore.optimizers.declarations import compiled
from anycore.optimizers.vocabulary import (
    ONE,
    TWO,
    ZERO,
    absolute,
    arctan2,
    cbrt,
    ceil,
    cos,
    erf,
    exp,
    expm1,
    floor,
    fmod,
    log,
    log1p,
    maximum,
    minimum,
    power,
    rint,
    sign,
    sin,
    sqrt,
    tanh,
    where,
)


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


def on_gpus(w: Any, g: Any, lr: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> Any:
    """Words that Triton's interpreter does not have."""
    return arctan2(w, g), cbrt(w), expm1(w), fmod(w, g), log1p(w), rint(w), tanh(w)


@dataclass(frozen=True, kw_only=True)
class OnGpus(Optimizer):
    rule = staticmethod(on_gpus)
    slots = tuple(Slot(name) for name in "abcdef")
    wire_name = "on_gpus"


@dataclass(frozen=True, kw_only=True)
class Nameless(Optimizer):
    rule = staticmethod(lambda w, g, lr: (w - lr * g,))
    wire_name = "nameless"
