"""The words a rule is written in, with their NumPy meaning.

A rule imports these names and nothing else. `kernels.bind` rebinds them for another backend by copying the rule
with other globals, so every word here needs a counterpart there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = [
    "ONE",
    "TWO",
    "ZERO",
    "absolute",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan2",
    "arctanh",
    "bits",
    "cbrt",
    "ceil",
    "cos",
    "cosh",
    "erf",
    "exp",
    "expm1",
    "float32",
    "float64",
    "floor",
    "fmod",
    "int32",
    "int64",
    "log",
    "log1p",
    "maximum",
    "minimum",
    "of_bits",
    "power",
    "quotient",
    "rint",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "tanh",
    "where",
]

# Named, because one numeric literal in a rule makes Numba compute all of it in float64.
ZERO: Any = np.float32(0)
ONE: Any = np.float32(1)
TWO: Any = np.float32(2)

sqrt: Any = np.sqrt
absolute: Any = np.absolute
sign: Any = np.sign
where: Any = np.where
minimum: Any = np.minimum
maximum: Any = np.maximum

exp: Any = np.exp
expm1: Any = np.expm1
log: Any = np.log
log1p: Any = np.log1p
sin: Any = np.sin
cos: Any = np.cos
sinh: Any = np.sinh
cosh: Any = np.cosh
tanh: Any = np.tanh
arcsin: Any = np.arcsin
arccos: Any = np.arccos
arctan2: Any = np.arctan2
arcsinh: Any = np.arcsinh
arccosh: Any = np.arccosh
arctanh: Any = np.arctanh
cbrt: Any = np.cbrt
floor: Any = np.floor
ceil: Any = np.ceil
rint: Any = np.rint
fmod: Any = np.fmod

# What an argument becomes: of a float, an integer takes the part before the point, which must be within its limits; of
# a wider integer, the last bits.
float32: Any = np.float32
float64: Any = np.float64
int32: Any = np.int32
int64: Any = np.int64

_HALF = np.float32(0.5)
_erf = np.vectorize(math.erf, otypes=[np.float64])


def erf(x: Any) -> Any:
    """Error function."""
    return _erf(x).astype(x.dtype)


def bits(x: Any) -> Any:
    """Bits of a float32 as an int32, of a float64 as an int64."""
    return x.view(np.int64 if x.dtype == np.float64 else np.int32)


def of_bits(x: Any) -> Any:
    """The float that has the bits of an integer of the same width."""
    return x.view(np.float64 if x.dtype == np.int64 else np.float32)


def quotient(a: Any, b: Any) -> Any:
    """a/b of integers, rounded towards zero; b must not be 0, nor -1 where a is the lowest integer."""
    return (a - np.fmod(a, b)) // b


def power(base: Any, exponent: Any) -> Any:
    """base ** exponent; the exponents ½, -½ and 1 are a square root, its reciprocal and the base itself.

    `exponent` is a compiled-in number (see `declarations.compiled`), so every backend takes the same branch.
    """
    if exponent == _HALF:
        return sqrt(base)
    if exponent == -_HALF:
        return ONE / sqrt(base)
    if exponent == ONE:
        return base
    return raised(base, exponent)


def raised(base: Any, exponent: Any) -> Any:
    """base ** exponent; no word of a rule, but what `power` comes to, for a backend that has a better one."""
    return base**exponent
