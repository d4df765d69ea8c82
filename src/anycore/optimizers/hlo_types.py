"""XLA's element types, and the few of them that a rule computes in.

A rule has float32, int32 and bool, and float64 and int64 where a program asks for 64 bits. Every other type lies in one
of these, its carrier: f16 and bf16 in a float32, and s8, u8, s16 and u16 in an int32 of the same value, u32 and u64 in
an int32 and an int64 of the same bits. So a library needs nothing of its own to compute with them.

Source: `PrimitiveType` and `LiteralProto`, xla_data.proto, TensorFlow 2.21.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Number = np.float32 | np.float64 | np.int32 | np.int64 | bool
"""A value of a carrier."""

_DTYPES: dict[str, type[Any]] = {
    "F32": np.float32,
    "F64": np.float64,
    "S32": np.int32,
    "S64": np.int64,
    "PRED": bool,
}


@dataclass(frozen=True)
class ElementType:
    """A type by its name in XLA: PRED, or one of numbers with that many bits, of which floats have exponent bits."""

    name: str
    bits: int
    exponent_bits: int = 0

    def __str__(self) -> str:
        return self.name.lower()

    @property
    def is_float(self) -> bool:
        """True for f16, bf16, f32 and f64."""
        return self.exponent_bits > 0

    @property
    def is_signed(self) -> bool:
        """True for s8, s16, s32 and s64."""
        return self.name.startswith("S")

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers."""
        return self.name[0] in "SU"

    @property
    def mantissa_bits(self) -> int:
        """Bits of a float's fraction."""
        return self.bits - 1 - self.exponent_bits

    @property
    def bias(self) -> int:
        """What a float's exponent is raised by, and the highest exponent of a number."""
        return (1 << self.exponent_bits - 1) - 1

    @property
    def carrier(self) -> ElementType:
        """The type that a rule computes in for this one."""
        if self == PRED:
            return self
        if self.is_float:
            return F64 if self == F64 else F32
        return S64 if self.bits == 64 else S32

    @property
    def signed(self) -> ElementType:
        """The signed integer of as many bits."""
        return ELEMENT_TYPES[f"S{self.bits}"]

    @property
    def unsigned(self) -> ElementType:
        """The unsigned integer of as many bits."""
        return ELEMENT_TYPES[f"U{self.bits}"]

    @property
    def lowest(self) -> int:
        """The lowest of the integers."""
        return -(1 << self.bits - 1) if self.is_signed else 0

    @property
    def highest(self) -> int:
        """The highest of the integers."""
        return self.lowest + (1 << self.bits) - 1

    def number(self, value: Any) -> Number:
        """Returns the carrier's number for a value of this type; integers wrap around."""
        if self.is_integer:
            value = (int(value) - self.lowest) % (1 << self.bits) + self.lowest
            if value > self.carrier.highest:
                value -= 1 << self.bits
        return _DTYPES[self.carrier.name](value)


PRED = ElementType("PRED", 1)
F16, BF16, F32, F64 = (
    ElementType(name, bits, exponent_bits)
    for name, bits, exponent_bits in [("F16", 16, 5), ("BF16", 16, 8), ("F32", 32, 8), ("F64", 64, 11)]
)
S8, S16, S32, S64 = (ElementType(f"S{bits}", bits) for bits in (8, 16, 32, 64))
U8, U16, U32, U64 = (ElementType(f"U{bits}", bits) for bits in (8, 16, 32, 64))

FLOATS = (F16, BF16, F32, F64)
SIGNED = (S8, S16, S32, S64)
INTEGERS = (*SIGNED, U8, U16, U32, U64)
ELEMENT_TYPES = {element_type.name: element_type for element_type in (PRED, *INTEGERS, *FLOATS)}
"""Types that an element of a program may have, by name."""
