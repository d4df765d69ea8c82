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
    "arctan2",
    "cbrt",
    "ceil",
    "cos",
    "erf",
    "exp",
    "expm1",
    "floor",
    "fmod",
    "log",
    "log1p",
    "maximum",
    "minimum",
    "power",
    "rint",
    "sign",
    "sin",
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
tanh: Any = np.tanh
arctan2: Any = np.arctan2
cbrt: Any = np.cbrt
erf: Any = np.vectorize(math.erf, otypes=[np.float32])
floor: Any = np.floor
ceil: Any = np.ceil
rint: Any = np.rint
fmod: Any = np.fmod

_HALF = np.float32(0.5)


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
