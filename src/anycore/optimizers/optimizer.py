"""What every optimizer has in common: its rule, its slots, and the parameters that are composed around any rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np

from anycore.errors import ConfigError

Limits = tuple[float | None, float | None]
"""(lower, upper); None leaves that side open."""


@dataclass(frozen=True)
class DynamicLearningRate:
    """A learning rate that is delivered with the gradients of every step, at position `tag`.

    Source: `LearningRate.dynamic`, optimization_parameters.proto, TensorFlow 2.21.
    """

    tag: int


@dataclass(frozen=True)
class SimulatedQuantization:
    """Rounding of looked-up rows to `num_buckets` levels between the limits; stored rows stay float32.

    Source: `SimulatedQuantization`, optimization_parameters.proto, TensorFlow 2.21.
    """

    clipping_limits: tuple[float, float]
    num_buckets: int


@dataclass(frozen=True)
class Slot:
    """A state variable that a rule keeps beside `parameters`, and the value it starts from."""

    name: str
    initial_value: float = 0.0


@dataclass(frozen=True)
class Interval:
    """The values that a hyper-parameter may take: low … high, an open end excluded."""

    low: float
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def __contains__(self, value: float) -> bool:
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high else value <= self.high
        return above and below and math.isfinite(value)

    def __str__(self) -> str:
        return f"{'(' if self.open_low else '['}{self.low:g}, {self.high:g}{')' if self.open_high else ']'}"


def compiled(default: float) -> Any:
    """Returns a dataclass field whose number becomes a constant of the compiled kernel, as every bool does.

    Exponents are such numbers: known to the compiler, `power` turns into a square root.
    """
    return field(default=default, metadata={_COMPILED: True})


_COMPILED = "compiled"
_ANY = Interval(-math.inf)


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """Parameters that surround a rule; a subclass adds the rule, its slots and its hyper-parameters.

    Hyper-parameters are the fields that a subclass adds. They carry the names of the proto's fields, so that the wire
    message and the dataclass are converted by name alone, and reach the rule after the slots, in order, as float32
    or bool.

    Source: `OptimizationParameters`, optimization_parameters.proto, TensorFlow 2.21.
    """

    learning_rate: float | DynamicLearningRate = 0.01
    clipping_limits: Limits = (None, None)
    gradient_clipping_limits: Limits = (None, None)
    weight_decay_factor: float = 0.0
    multiply_weight_decay_factor_by_learning_rate: bool = False
    gradient_accumulation: bool = True
    simulated_quantization: SimulatedQuantization | None = None
    hot_id_replication: bool = False
    low_dimensional_packing: bool = False

    rule: ClassVar[Callable[..., Any]]
    """`(w, g, lr, *slots, *hyper_parameters) -> (w, *slots)`, element-wise, in the words of `vocabulary`."""
    slots: ClassVar[tuple[Slot, ...]] = ()
    intervals: ClassVar[dict[str, Interval]] = {}
    """Hyper-parameter → the values it may take; one that is not named may be any finite number."""
    wire_name: ClassVar[str]
    """The field of the oneof `OptimizationParameters.parameters`."""
    op_name: ClassVar[str]
    """The algorithm's name inside `LoadTPUEmbedding<op_name>Parameters`."""

    def __post_init__(self) -> None:
        for name, value, problem in self._problems():
            raise ConfigError(f"optimizer {self.wire_name}: {name} {problem}, got {value!r} (OptimizationParameters)")

    def _problems(self) -> Iterator[tuple[str, Any, str]]:
        if not isinstance(self.learning_rate, DynamicLearningRate) and not math.isfinite(self.learning_rate):
            yield "learning_rate.constant", self.learning_rate, "must be finite"
        if isinstance(self.learning_rate, DynamicLearningRate) and self.learning_rate.tag < 0:
            yield "learning_rate.dynamic.tag", self.learning_rate.tag, "must not be negative"
        if not math.isfinite(self.weight_decay_factor):
            yield "weight_decay_factor", self.weight_decay_factor, "must be finite"
        for field_name in ("clipping_limits", "gradient_clipping_limits"):
            limits = getattr(self, field_name)
            lower, upper = limits
            if not (-math.inf if lower is None else lower) <= (math.inf if upper is None else upper):
                yield field_name, limits, "must have lower <= upper"
        if self.updates_every_row and not self.gradient_accumulation:
            yield "gradient_accumulation_status", "DISABLED", "must be enabled when every row is updated"
        quantization = self.simulated_quantization
        if quantization is not None:
            lower, upper = quantization.clipping_limits
            if not (math.isfinite(lower) and math.isfinite(upper) and lower < upper):
                yield (
                    "simulated_quantization.clipping_limits",
                    (lower, upper),
                    "must be two finite numbers, lower < upper",
                )
            if quantization.num_buckets < 2:
                yield "simulated_quantization.num_buckets", quantization.num_buckets, "must be at least 2"
        for name in self.hyper_parameter_names():
            value = getattr(self, name)
            interval = self.intervals.get(name, _ANY)
            if not isinstance(value, bool) and value not in interval:
                yield name, value, f"must be in {interval}"

    @property
    def updates_every_row(self) -> bool:
        """True when rows that no id touched are updated too, with a zero gradient."""
        return False

    @property
    def state_variables(self) -> tuple[str, ...]:
        """Names of the state variables in wire order: `parameters`, then the slots."""
        return ("parameters", *(slot.name for slot in self.slots))

    @classmethod
    def hyper_parameter_names(cls) -> tuple[str, ...]:
        """Names of the fields that the optimizer adds to the common ones, in order."""
        common = {f.name for f in fields(Optimizer)}
        return tuple(f.name for f in fields(cls) if f.name not in common)

    def constants(self) -> dict[str, bool | np.float32]:
        """Hyper-parameters that are compiled into the kernel: bools and `compiled` numbers, by name."""
        marked = {f.name for f in fields(self) if f.metadata.get(_COMPILED)}
        values = {name: getattr(self, name) for name in self.hyper_parameter_names()}
        return {
            name: value if isinstance(value, bool) else np.float32(value)
            for name, value in values.items()
            if isinstance(value, bool) or name in marked
        }

    def variables(self) -> tuple[np.float32, ...]:
        """Hyper-parameters that the compiled kernel takes as arguments, in field order."""
        constants = self.constants()
        names = [name for name in self.hyper_parameter_names() if name not in constants]
        return tuple(np.float32(getattr(self, name)) for name in names)
