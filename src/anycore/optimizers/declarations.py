"""What an optimizer is declared with: slots, dynamic inputs, limits, and the values that a hyper-parameter may take."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Limits = tuple[float | None, float | None]
"""(lower, upper); None leaves that side open."""


@dataclass(frozen=True)
class DynamicInput:
    """A learning rate, or another number, that arrives with the gradients of every step, at position `tag`.

    Source: `OptimizerDynamicInput`, optimization_parameters.proto, TensorFlow 2.21.
    """

    tag: int


def are_limits(limits: Any) -> bool:
    """Returns whether `limits` is (lower, upper), of which each is a number, an infinity or None for an open side."""
    try:
        lower, upper = limits
    except (TypeError, ValueError):
        return False
    return all(limit in (None, math.inf, -math.inf) or limit in ANY_NUMBER for limit in (lower, upper))


def _is_wide(lower: float, upper: float) -> bool:
    with np.errstate(over="ignore"):
        return bool(0 < np.float32(upper) - np.float32(lower) < np.inf)


@dataclass(frozen=True)
class SimulatedQuantization:
    """Rounding of looked-up rows to `num_buckets` levels between the limits; stored rows stay float32.

    Source: `SimulatedQuantization`, optimization_parameters.proto, TensorFlow 2.21.
    """

    clipping_limits: tuple[float, float]
    num_buckets: int

    def problems(self) -> Iterator[tuple[str, Any, str]]:
        """Yields name, value and what is wrong with it."""
        limits = self.clipping_limits
        if not (are_limits(limits) and all(limit in ANY_NUMBER for limit in limits) and _is_wide(*limits)):
            yield (
                "simulated_quantization.clipping_limits",
                self.clipping_limits,
                "must be two finite numbers, lower < upper",
            )
        if not isinstance(self.num_buckets, int | np.integer) or self.num_buckets < 2:
            yield "simulated_quantization.num_buckets", self.num_buckets, "must be at least 2"


@dataclass(frozen=True)
class Slot:
    """A state variable that a rule keeps beside `parameters`, and the value it starts from.

    `per_row` makes it one number a row, [rows, 1], which the rule may compute from numbers of the row alone.
    """

    name: str
    initial_value: float = 0.0
    per_row: bool = False


@dataclass(frozen=True)
class Interval:
    """The values that a hyper-parameter may take: low … high, an open end excluded."""

    low: float
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def __contains__(self, value: Any) -> bool:
        if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
            return False
        with np.errstate(over="ignore"):
            value = float(np.float32(value))  # what the rule will get
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high else value <= self.high
        return above and below and math.isfinite(value)

    @property
    def example(self) -> float:
        """One of the values: 0 if it is among them."""
        if 0.0 in self:
            return 0.0
        low, high = (self.low, self.high) if math.isfinite(self.low) else (self.high - 2, self.high)
        return (low + min(high, low + 2)) / 2

    def __str__(self) -> str:
        start = "(" if self.open_low or math.isinf(self.low) else "["
        end = ")" if self.open_high or math.isinf(self.high) else "]"
        return f"{start}{self.low:g}, {self.high:g}{end}"


ANY_NUMBER = Interval(-math.inf)


def compiled(default: float) -> Any:
    """Returns a dataclass field whose number becomes a constant of the compiled kernel, as every bool does.

    Exponents are such numbers: known to the compiler, `power` turns into a square root.
    """
    return field(default=default, metadata={"compiled": True})
