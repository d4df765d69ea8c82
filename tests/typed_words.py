"""What the words that change a type, or divide integers, make of numbers at the edges of the types."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

Array = np.ndarray


class Case(NamedTuple):
    word: str
    operands: tuple[Array, ...]
    expected: Array

    def __str__(self) -> str:
        return f"{self.word} of {self.operands[0].dtype}"


_WHOLE = [0, 1, -1, 2, -2, 3, 7, -7, 100, 2**24 + 1]
_INT32 = np.array([*_WHOLE, 2**31 - 1, -(2**31), -(2**31) + 1], np.int32)
_INT64 = np.array([*_INT32, 2**31, 2**40 + 1, 2**63 - 1, -(2**63)], np.int64)
_FLOAT64 = np.array([0.0, -0.0, 0.5, -0.5, 1.9, -1.9, 2.5, 1e9, -1e9, 0.1, 2.0**30 + 1])
_FLOAT32 = _FLOAT64.astype(np.float32)
_ANY = np.append(_FLOAT64, [1e-30, np.inf, -np.inf, np.nan])


def _quotients(integers: Array) -> Case:
    a, b = (axis.ravel() for axis in np.meshgrid(integers, [b for b in integers if b not in (0, -1)]))
    exact = [abs(int(x)) // abs(int(y)) * (-1 if (x < 0) != (y < 0) else 1) for x, y in zip(a, b, strict=True)]
    return Case("quotient", (a, b.astype(a.dtype)), np.array(exact, a.dtype))


CASES = [
    *(
        Case(f"int{8 * size}", (values,), values.astype(f"i{size}"))
        for size in (4, 8)
        for values in (_FLOAT32, _FLOAT64)
    ),
    *(Case(f"int{8 * size}", (values,), values.astype(f"i{size}")) for size in (4, 8) for values in (_INT32, _INT64)),
    *(Case(f"float{8 * size}", (values,), values.astype(f"f{size}")) for size in (4, 8) for values in (_INT32, _INT64)),
    *(Case(f"float{8 * size}", (_ANY.astype(t),), _ANY.astype(t).astype(f"f{size}")) for size in (4, 8) for t in "fd"),
    Case("bits", (_ANY.astype("f"),), _ANY.astype("f").view("i4")),
    Case("bits", (_ANY,), _ANY.view("i8")),
    Case("of_bits", (_ANY.astype("f").view("i4"),), _ANY.astype("f")),
    Case("of_bits", (_ANY.view("i8"),), _ANY),
    _quotients(_INT32),
    _quotients(_INT64),
]
TYPED_WORDS = {case.word for case in CASES}
