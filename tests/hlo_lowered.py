"""Programs that JAX lowers, of every operation and element type, and what XLA computes by them on CPUs.

A program has up to eight results, each of one operation. Operands come from the bits or the numbers of g and w, and
leave as an f32 that has their value or, of 32 bits, their bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import ml_dtypes  # noqa: F401  (NumPy learns of bfloat16)
import numpy as np
from jax import lax
from tolerance import BRAIN_FUNCTION, FUNCTION_OF_A_LIBRARY, HALF_FUNCTION, Tolerance

from anycore.optimizers import UserDefinedProgram

MOST_RESULTS = 8
INTEGERS = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
TYPES = ["bool", *INTEGERS, *FLOATS]

_EDGES = [*range(9), 15, 16, 31, 32, 33, 63, 64, 100, *(2**k + d for k in (7, 8, 15, 16, 31) for d in (-1, 0, 1))]
_NUMBERS = [0, 1, 0.5, 1.5, 2.5, 0.3, 3, 7, 80, 100.7, 127.5, 128.9, 255.6, 65519.9, 65520, 6e-5, 3e-8, 5.9e-8, 1e-20]
_NUMBERS += [1e30, 2.0**31, 2.0**32, 2.0**63, 2.0**64, 3.4e38, np.inf, np.nan]
BITS = np.array([*_EDGES, *(2**32 - 1 - edge for edge in _EDGES)], np.uint32).view(np.float32)
"""What tests integers, as f32: numbers from both ends, and next to the powers of two."""
NUMBERS = np.array([sign * number for number in _NUMBERS for sign in (1.0, -1.0)], np.float32)
"""What tests floats; no denormals, which XLA on CPUs takes for zeros."""


@contextmanager
def of_64_bits() -> Iterator[None]:
    """JAX has 64 bits within."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


@dataclass(frozen=True)
class Lowered:
    """Operations `(a, b) -> result` by name, of operands of one type."""

    element_type: str
    operations: dict[str, Callable[[Any, Any], Any]]
    tolerance: Tolerance | None = None
    """None where results have the very bits."""

    @property
    def is_wide(self) -> bool:
        """True when the operands have 64 bits."""
        return self.element_type.endswith("64")

    @cached_property
    def inputs(self) -> tuple[np.ndarray, np.ndarray]:
        """g and w, [1, pairs]."""
        values = BITS if self.element_type in INTEGERS else NUMBERS
        g, w = (axis.reshape(1, -1) for axis in np.meshgrid(values, values))
        return g, w

    @cached_property
    def optimizer(self) -> UserDefinedProgram:
        """The program that JAX lowers."""
        with of_64_bits():
            arguments = [jax.ShapeDtypeStruct((1, 1), "float32")] * (1 + len(self.operations))
            module = jax.jit(self._run, keep_unused=True).lower(*arguments).compiler_ir("hlo")
        return UserDefinedProgram(program=module.as_serialized_hlo_module_proto())

    @cached_property
    def expected(self) -> list[np.ndarray]:
        """What XLA computes, every operation rounded as the program says."""
        with of_64_bits():
            arguments = [*self.inputs, *[self.inputs[0]] * (len(self.operations) - 1)]
            compiled = jax.jit(self._run, keep_unused=True).lower(*arguments)
            return [
                *map(
                    np.asarray,
                    compiled.compile({"xla_allow_excess_precision": False, "xla_backend_optimization_level": 0})(
                        *arguments
                    ),
                )
            ]

    def assert_close(self, found: Sequence[np.ndarray]) -> None:
        """The results are what XLA computes."""
        for name, ours, theirs in zip(self.operations, found, self.expected, strict=True):
            assert ours.dtype == np.float32
            if self.tolerance is not None:
                self.tolerance.assert_close(ours, theirs, name)
            elif self.element_type in FLOATS:
                _assert_same_numbers(ours, theirs, name)
            else:
                np.testing.assert_array_equal(ours.view(np.int32), theirs.view(np.int32), name)

    def _run(self, g: Any, w: Any, *slots: Any) -> tuple[Any, ...]:
        a, b = operand(g, self.element_type, 32), operand(w, self.element_type, 0)
        return tuple(_as_float32(operation(a, b)) for operation in self.operations.values())


def _assert_same_numbers(ours: np.ndarray, theirs: np.ndarray, name: str) -> None:
    # XLA takes denormal numbers for zeros.
    ours, theirs = (np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(0, x), x) for x in (ours, theirs))
    np.testing.assert_array_equal(ours, theirs, name)
    if name not in ("clamp", "maximum", "minimum"):  # which of 0.0 and -0.0 is the greater is open
        zero = theirs == 0
        np.testing.assert_array_equal(np.signbit(ours[zero]), np.signbit(theirs[zero]), name)


def operand(x: Any, element_type: str, shift: int) -> Any:
    """Returns an operand of the type from the numbers or the bits of x, which stand so far up if there are 64."""
    if element_type == "bool":
        return x > 0
    if element_type in FLOATS:
        return lax.convert_element_type(x, element_type)
    bits = lax.bitcast_convert_type(x, "int32")
    if element_type.endswith("64"):
        bits = lax.convert_element_type(bits, "int64") << shift
    return lax.convert_element_type(bits, element_type)


def _as_float32(y: Any) -> Any:
    name = y.dtype.name
    if name in ("int64", "uint64"):
        y = lax.convert_element_type(y ^ lax.shift_right_logical(y, lax.full_like(y, 32)), "int32")
    if name in INTEGERS and y.dtype.itemsize == 4:
        return lax.bitcast_convert_type(y, "float32")
    return lax.convert_element_type(y, "float32")


_COMPARED = {name: getattr(lax, name) for name in ("eq", "ne", "ge", "gt", "le", "lt")}
_OF_ALL = {"maximum": lax.max, "minimum": lax.min, **_COMPARED, "select": lambda a, b: lax.select(a < b, a, b)}
_OF_NUMBERS = {
    "add": lax.add,
    "clamp": lambda a, b: lax.clamp(lax.full_like(a, 2), a, b),
    "divide": lax.div,
    "multiply": lax.mul,
    "negate": lambda a, b: -a,
    "remainder": lax.rem,
    "subtract": lax.sub,
}
_OF_BITS = {"and": lax.bitwise_and, "not": lambda a, b: ~a, "or": lax.bitwise_or, "xor": lax.bitwise_xor}
_OF_INTEGERS = {
    **_OF_ALL,
    **_OF_NUMBERS,
    **_OF_BITS,
    "count-leading-zeros": lambda a, b: lax.clz(a),
    "popcnt": lambda a, b: lax.population_count(a),
    "shift-left": lax.shift_left,
    "shift-right-arithmetic": lax.shift_right_arithmetic,
    "shift-right-logical": lax.shift_right_logical,
}
_OF_SIGNED = {"abs": lambda a, b: lax.abs(a), "sign": lambda a, b: lax.sign(a)}
_OF_FLOATS = {
    **_OF_ALL,
    **_OF_NUMBERS,
    **_OF_SIGNED,
    "ceil": lambda a, b: lax.ceil(a),
    "floor": lambda a, b: lax.floor(a),
    "is-finite": lambda a, b: lax.is_finite(a),
    "reduce-precision": lambda a, b: lax.reduce_precision(a, 4, 3),
    "round-nearest-afz": lambda a, b: lax.round(a, lax.RoundingMethod.AWAY_FROM_ZERO),
    "round-nearest-even": lambda a, b: lax.round(a, lax.RoundingMethod.TO_NEAREST_EVEN),
}
_FUNCTIONS = {
    "atan2": lax.atan2,
    "cbrt": lambda a, b: lax.cbrt(a),
    "cosine": lambda a, b: lax.cos(a),
    "erf": lambda a, b: lax.erf(a),
    "exponential": lambda a, b: lax.exp(a),
    "exponential-minus-one": lambda a, b: lax.expm1(a),
    "log": lambda a, b: lax.log(a),
    "log-plus-one": lambda a, b: lax.log1p(a),
    "logistic": lambda a, b: lax.logistic(a),
    "power": lax.pow,
    "rsqrt": lambda a, b: lax.rsqrt(a),
    "sine": lambda a, b: lax.sin(a),
    "sqrt": lambda a, b: lax.sqrt(a),
    "tan": lambda a, b: lax.tan(a),
    "tanh": lambda a, b: lax.tanh(a),
}
_REDUCED = [(5, 10), (8, 7), (5, 2), (8, 23), (2, 1), (1, 0), (8, 0), (3, 23)]
_TOLERANCES = {"float16": HALF_FUNCTION, "bfloat16": BRAIN_FUNCTION}


def _to(convert: Callable[[Any, str], Any], element_types: Sequence[str]) -> dict[str, Callable[[Any, Any], Any]]:
    return {name: partial(lambda a, b, name: convert(a, name), name=name) for name in element_types}


def _in_programs(
    kind: str,
    element_type: str,
    operations: Mapping[str, Callable[[Any, Any], Any]],
    tolerance: Tolerance | None = None,
) -> Iterator[tuple[str, Lowered]]:
    names = list(operations)
    for first in range(0, len(names), MOST_RESULTS):
        part = {name: operations[name] for name in names[first : first + MOST_RESULTS]}
        yield f"{kind} {element_type} {first // MOST_RESULTS}", Lowered(element_type, part, tolerance)


def _all() -> Iterator[tuple[str, Lowered]]:
    yield from _in_programs("arithmetic", "bool", _OF_ALL | _OF_BITS)
    for element_type in INTEGERS:
        signed = {} if element_type.startswith("u") else _OF_SIGNED
        yield from _in_programs("arithmetic", element_type, _OF_INTEGERS | signed)
    for element_type in FLOATS:
        yield from _in_programs("arithmetic", element_type, _OF_FLOATS)
        tolerance = _TOLERANCES.get(element_type, FUNCTION_OF_A_LIBRARY)
        yield from _in_programs("function", element_type, _FUNCTIONS, tolerance)
    reduced = {
        f"{sizes}": partial(lambda a, b, sizes: lax.reduce_precision(a, *sizes), sizes=sizes) for sizes in _REDUCED
    }
    yield from _in_programs("reduced", "float32", reduced)
    for element_type in TYPES:
        others = [other for other in TYPES if other != element_type]
        yield from _in_programs("converted", element_type, _to(lax.convert_element_type, others))
        size = np.dtype(element_type).itemsize
        as_wide = [
            other for other in others if np.dtype(other).itemsize == size and "bool" not in (other, element_type)
        ]
        yield from _in_programs("bits", element_type, _to(lax.bitcast_convert_type, as_wide))


LOWERED = dict(_all())
"""Programs by name."""
