"""What every optimizer shares, put around its rule once for all backends: gradient clip, decay, rule, weight clip."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, replace
from types import FunctionType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from anycore.optimizers.declarations import ANY_NUMBER, DynamicInput, Limits
from anycore.optimizers.declared import MEAN_SQUARE, DeclaredOptimizer
from anycore.optimizers.source import define

LEARNING_RATE, DECAY, GRADIENT_LOWER, GRADIENT_UPPER, LOWER, UPPER, FIRST_HYPER_PARAMETER = range(7)
"""Places in the float32 settings that a composed step reads."""


_Optimizer = TypeVar("_Optimizer", bound=DeclaredOptimizer)


def rebind(rule: Callable[..., Any], words: Mapping[str, Any]) -> FunctionType:
    """Returns a copy of `rule` that reads its global names from `words`."""
    code: FunctionType = rule  # type: ignore[assignment]
    return FunctionType(code.__code__, {**code.__globals__, **words}, code.__name__, code.__defaults__)


def settings_of(optimizer: DeclaredOptimizer, dynamic_inputs: Sequence[float] = ()) -> NDArray[np.float32]:
    """Returns the float32 settings of a step with those dynamic inputs, by tag."""
    rate = np.float32(optimizer.resolve(optimizer.learning_rate, dynamic_inputs))
    return np.array(settings_with(optimizer, rate, optimizer.variables(dynamic_inputs).values()), np.float32)


def settings_with(optimizer: DeclaredOptimizer, rate: Any, variables: Iterable[Any]) -> list[Any]:
    """Returns the settings of a step with that learning rate and those `DeclaredOptimizer.variables`, all float32."""
    decay = np.float32(optimizer.weight_decay_factor)
    if optimizer.multiply_weight_decay_factor_by_learning_rate:
        decay = decay * rate
    limits = [
        np.float32(open_side if limit is None else limit)
        for pair in (optimizer.gradient_clipping_limits, optimizer.clipping_limits)
        for limit, open_side in zip(pair, (-np.inf, np.inf), strict=True)
    ]
    return [rate, decay, *limits, *variables]


def structure_of(optimizer: _Optimizer) -> _Optimizer:
    """Returns `optimizer` without the numbers that reach a composed step as settings: equal ones compose equally."""

    def present(limits: Limits) -> Limits:
        return (None, None) if limits == (None, None) else (0.0, 0.0)

    def example(field: Field[Any]) -> Any:
        if field.default is not MISSING:
            return field.default
        is_dynamic = isinstance(getattr(optimizer, field.name), DynamicInput)
        return DynamicInput(0) if is_dynamic else optimizer.intervals.get(field.name, ANY_NUMBER).example

    variables = optimizer.variables()
    return replace(
        optimizer,
        learning_rate=0.0,
        clipping_limits=present(optimizer.clipping_limits),
        gradient_clipping_limits=present(optimizer.gradient_clipping_limits),
        weight_decay_factor=float(optimizer.weight_decay_factor != 0),
        multiply_weight_decay_factor_by_learning_rate=False,
        gradient_accumulation=True,
        simulated_quantization=None,
        hot_id_replication=False,
        low_dimensional_packing=False,
        **{field.name: example(field) for field in fields(optimizer) if field.name in variables},
    )


def clip_gradient(optimizer: DeclaredOptimizer) -> list[str]:
    """Returns the source lines that clip `g`, in the words of a backend; none when the gradient has no limits."""
    if optimizer.gradient_clipping_limits == (None, None):
        return []
    return [f"g = minimum(maximum(g, settings[{GRADIENT_LOWER}]), settings[{GRADIENT_UPPER}])"]


def compose(optimizer: DeclaredOptimizer, words: Mapping[str, Any], compile: Callable[..., Any] = lambda f: f) -> Any:
    """Returns `step(w, g, settings, *slots) -> (w, *slots)` in a backend's words; functions go through `compile`.

    A rule with an argument `mean_square` makes it the step's last argument, that of the clipped gradient.

    Source: optimization_parameters.proto: limits clip the gradient before it is used and the weight after the update;
    decay is decoupled, w -= decay·w before the rule.
    """
    optimizer.check_rule()
    assert optimizer.rule is not None
    slots = [f"slot_{k}" for k in range(len(optimizer.slots))]
    extra = [MEAN_SQUARE] if MEAN_SQUARE in optimizer.rule_arguments else []
    source = clip_gradient(optimizer)
    source += [f"{name} = settings[{FIRST_HYPER_PARAMETER + k}]" for k, name in enumerate(optimizer.variables())]
    if optimizer.weight_decay_factor:
        source += [f"w = w - settings[{DECAY}] * w"]
    results = ", ".join(["w", *slots]) + ","
    arguments = ["w", "g", f"settings[{LEARNING_RATE}]", *slots, *optimizer.rule_arguments]
    source += [f"{results} = rule({', '.join(arguments)})"]
    if optimizer.clipping_limits != (None, None):
        source += [f"w = minimum(maximum(w, settings[{LOWER}]), settings[{UPPER}])"]
    source += [f"return {results}"]
    namespace = {**words, **optimizer.constants(), "rule": compile(rebind(optimizer.rule, words))}
    return compile(define("step", ["w", "g", "settings", *slots, *extra], source, namespace))
