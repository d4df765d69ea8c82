"""What an optimizer declares: its rule, its slots, and the parameters that are composed around any rule."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar

import numpy as np

from anycore.errors import ConfigError
from anycore.optimizers.declarations import (
    ANY_NUMBER,
    DynamicInput,
    Interval,
    Limits,
    SimulatedQuantization,
    Slot,
    are_limits,
)
from anycore.optimizers.laws import check_rule

_W_G_LR = 3
_COMMON = "OptimizationParameters"
MEAN_SQUARE = "mean_square"
"""A rule with an argument of this name gets the mean of g² over the row's columns, after clipping."""


@dataclass(frozen=True, kw_only=True)
class DeclaredOptimizer:
    """Parameters that surround a rule; a subclass adds the rule, its slots and its hyper-parameters.

    Hyper-parameters are the fields that a subclass adds. They carry the names of the proto's fields, so that the wire
    message and the dataclass are converted by name alone, and reach the rule by name after the slots, as float32 or
    bool.

    Source: `OptimizationParameters`, optimization_parameters.proto, TensorFlow 2.21.
    """

    learning_rate: float | DynamicInput = 0.01
    clipping_limits: Limits = (None, None)
    gradient_clipping_limits: Limits = (None, None)
    weight_decay_factor: float = 0.0
    multiply_weight_decay_factor_by_learning_rate: bool = False
    gradient_accumulation: bool = True
    simulated_quantization: SimulatedQuantization | None = None
    hot_id_replication: bool = False
    low_dimensional_packing: bool = False

    rule: ClassVar[Callable[..., Any] | None]
    """`(w, g, lr, *slots, *hyper_parameters) -> (w, *slots)`, element-wise, in the words of `vocabulary`; None where no
    arithmetic is published."""
    slots: ClassVar[tuple[Slot, ...]] = ()
    intervals: ClassVar[dict[str, Interval]] = {}
    """Hyper-parameter → the values it may take; one that is not named may be any finite number."""
    constant_rates: ClassVar[Interval] = ANY_NUMBER
    """The values that a learning rate in the configuration may take."""
    wire_name: ClassVar[str]
    """The field of the oneof `OptimizationParameters.parameters`."""
    op_name: ClassVar[str | None] = None
    """The algorithm's name inside `LoadTPUEmbedding<op_name>Parameters`, where there is such an op."""
    only_dimension: ClassVar[int | None] = None
    """The one dimension that a table may have, where the algorithm says so."""

    def __post_init__(self) -> None:
        for name, value, problem in self._problems():
            message = f"OptimizationParameters.{self.wire_name}" if name in self.hyper_parameters() else _COMMON
            raise ConfigError(f"optimizer {self.wire_name}: {name} {problem}, got {value!r} ({message}.{name})")

    @property
    def updates_every_row(self) -> bool:
        """True when rows that no id touched are updated too, with a zero gradient."""
        return False

    @property
    def state_variables(self) -> tuple[str, ...]:
        """Names of the state variables in wire order: `parameters`, then the slots."""
        return ("parameters", *(slot.name for slot in self.slots))

    @property
    def tags(self) -> set[int]:
        """Tags of the dynamic inputs: the learning rate's, and those of hyper-parameters."""
        values = (self.learning_rate, *self.hyper_parameters().values())
        return {value.tag for value in values if isinstance(value, DynamicInput)}

    @property
    def rule_arguments(self) -> tuple[str, ...]:
        """Names of the rule's arguments after w, g, lr and the slots: hyper-parameters, or MEAN_SQUARE."""
        assert self.rule is not None, self.wire_name
        return tuple(inspect.signature(self.rule).parameters)[_W_G_LR + len(self.slots) :]

    def check_rule(self) -> None:
        """Raises ConfigError when the rule breaks a law of `laws`."""
        assert self.rule is not None, self.wire_name
        examples = {**self.constants(), **self.variables(), MEAN_SQUARE: np.full((2, 1), 0.25, np.float32)}
        check_rule(self.rule, self.slots, examples)

    def hyper_parameters(self) -> dict[str, Any]:
        """Values of the fields that the optimizer adds to the common ones, in order."""
        return {name: getattr(self, name) for name in added_fields(type(self))}

    def constants(self) -> dict[str, bool | np.float32]:
        """Hyper-parameters that are compiled into the kernel: bools and `compiled` numbers, by name."""
        marked = {f.name for f in fields(self) if f.metadata.get("compiled")}
        return {
            name: value if isinstance(value, bool) else np.float32(value)
            for name, value in self.hyper_parameters().items()
            if isinstance(value, bool) or name in marked
        }

    def variables(self, dynamic_inputs: Sequence[float] = ()) -> dict[str, np.float32]:
        """Hyper-parameters that the compiled kernel takes as arguments, by name; dynamic_inputs[tag] of a step."""
        constants = self.constants()
        return {
            name: np.float32(self.resolve(value, dynamic_inputs))
            for name, value in self.hyper_parameters().items()
            if name not in constants
        }

    @staticmethod
    def resolve(value: float | DynamicInput, dynamic_inputs: Sequence[float]) -> float:
        """Returns the number that `value` stands for; a dynamic input that no step has delivered yet is 0."""
        if isinstance(value, DynamicInput):
            return dynamic_inputs[value.tag] if dynamic_inputs else 0.0
        return value

    def _problems(self) -> Iterator[tuple[str, Any, str]]:
        if isinstance(self.learning_rate, DynamicInput):
            yield from _tag_problem("learning_rate.dynamic", self.learning_rate.tag)
        else:
            yield from _number_problem("learning_rate.constant", self.learning_rate, self.constant_rates)
        yield from _number_problem("weight_decay_factor", self.weight_decay_factor, ANY_NUMBER)
        for field_name in ("clipping_limits", "gradient_clipping_limits"):
            limits = getattr(self, field_name)
            if not are_limits(limits):
                yield field_name, limits, "must be a pair of numbers, None for an open side"
            elif None not in limits and limits[0] > limits[1]:
                yield field_name, limits, "must have lower <= upper"
        if self.updates_every_row and not self.gradient_accumulation:
            yield "gradient_accumulation_status", "DISABLED", "must be enabled when every row is updated"
        quantization: Any = self.simulated_quantization
        if isinstance(quantization, SimulatedQuantization):
            yield from quantization.problems()
        elif quantization is not None:
            yield "simulated_quantization", quantization, "must be a SimulatedQuantization or None"
        defaults = {f.name: f.default for f in fields(self)}
        for name, value in self.hyper_parameters().items():
            # What has no default may be anything.
            like = value if defaults[name] is MISSING else defaults[name]
            if isinstance(like, bool):
                if not isinstance(value, bool):
                    yield name, value, "must be True or False"
            elif isinstance(like, DynamicInput) and isinstance(value, DynamicInput):
                yield from _tag_problem(name, value.tag)
            else:
                yield from _number_problem(name, value, self.intervals.get(name, ANY_NUMBER))


def _tag_problem(name: str, tag: Any) -> Iterator[tuple[str, Any, str]]:
    if not isinstance(tag, int | np.integer):
        yield f"{name}.tag", tag, "must be an integer"
    elif tag < 0:
        yield f"{name}.tag", tag, "must not be negative"


def _number_problem(name: str, value: Any, interval: Interval) -> Iterator[tuple[str, Any, str]]:
    if value not in interval:
        yield name, value, "must be finite" if interval == ANY_NUMBER else f"must be in {interval}"


def added_fields(optimizer: type[DeclaredOptimizer]) -> list[str]:
    """Returns the names of the hyper-parameters: the fields that the class adds to the common ones, in order."""
    common = {f.name for f in fields(DeclaredOptimizer)}
    return [f.name for f in fields(optimizer) if f.name not in common]
