"""The lines that a program becomes, and the numbers that stand beside them as arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from anycore.optimizers.backends import NUMPY
from anycore.optimizers.hlo_types import F64, ElementType, Number
from anycore.optimizers.source import define


@dataclass(frozen=True)
class Value:
    """What an instruction computes: a name in the source, or a number that is known already, of the carrier."""

    element_type: ElementType
    name: str = ""
    number: Number | None = None

    def as_type(self, element_type: ElementType) -> Value:
        """Returns the same carrier's value, which now stands for another type."""
        return replace(self, element_type=element_type)


class Source:
    """Lines of a function in the words of `vocabulary`, and its constants by argument name."""

    def __init__(self) -> None:
        self.constants: dict[str, Number] = {}
        self._names: dict[tuple[str, bytes], str] = {}
        self._lines: list[str] = []

    def function(self, name: str, arguments: Sequence[str], results: Sequence[Value]) -> Callable[..., Any]:
        """Returns the function of all that was written, `(*arguments, *constants) -> results`."""
        texts = [self._text(result) for result in results]
        lines = [*self._lines, f"return {', '.join(texts)},"]
        return define(name, [*arguments, *self.constants], lines, dict(NUMPY))

    def number(self, element_type: ElementType, value: Any) -> Value:
        """Returns a value that is known."""
        return Value(element_type, number=element_type.number(value))

    def write(self, carrier: ElementType, expression: str, *operands: Value) -> Value:
        """Returns the value of an expression of the operands {0}, {1}, …; one of numbers alone is computed now.

        Integers wrap around. Numba computes them in 64 bits, from which each line comes back.
        """
        if all(operand.number is not None for operand in operands):
            return Value(carrier, number=_evaluated(carrier, expression, operands))
        text = expression.format(*map(self._text, operands))
        name = f"v_{len(self._lines)}"
        self._lines.append(f"{name} = int{carrier.bits}({text})" if carrier.is_integer else f"{name} = {text}")
        return Value(carrier, name)

    def choose(self, condition: Value, a: Value, b: Value) -> Value:
        """Returns `a` where the condition holds, else `b`, of the type of `a`."""
        if condition.number is not None:
            return (a if condition.number else b).as_type(a.element_type)
        chosen = self.write(a.element_type.carrier, "where({0}, {1}, {2})", condition, a, b)
        return chosen.as_type(a.element_type)

    def _text(self, value: Value) -> str:
        if value.number is None:
            return value.name
        number: Any = value.number
        if value.element_type == F64:
            # Some backends would take a number for a float32.
            return f"of_bits(int64({self._constant(np.float64(number).view(np.int64))}))"
        carrier = value.element_type.carrier
        return f"int{carrier.bits}({self._constant(number)})" if carrier.is_integer else self._constant(number)

    def _constant(self, number: Any) -> str:
        array = np.asarray(number)
        name = self._names.setdefault((array.dtype.str, array.tobytes()), f"c_{len(self._names)}")
        self.constants[name] = number
        return name


def _evaluated(carrier: ElementType, expression: str, operands: Sequence[Value]) -> Number:
    names = [f"operand_{k}" for k in range(len(operands))]
    numbers = {name: operand.number for name, operand in zip(names, operands, strict=True)}
    with np.errstate(all="ignore"):
        return carrier.number(eval(expression.format(*names), {**NUMPY, **numbers}))
