"""A rule becomes a function of a backend: the same code with the backend's words in place of NumPy's.

`compose` puts what every optimizer shares around the rule, once for all backends:
gradient clip, weight decay, rule, weight clip.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import cache
from types import FunctionType
from typing import Any

import numpy as np
from numba import cfunc, njit

from anycore.kernels.pointers import FLOAT_BYTES, floats
from anycore.optimizers import vocabulary
from anycore.optimizers.optimizer import Limits, Optimizer

LEARNING_RATE, DECAY, GRADIENT_LOWER, GRADIENT_UPPER, LOWER, UPPER, FIRST_HYPER_PARAMETER = range(7)
"""Columns of the float32 settings that a compiled update reads for each table."""

NUMPY: dict[str, Any] = {word: getattr(vocabulary, word) for word in vocabulary.__all__}

# Strict IEEE arithmetic: exact against NumPy, and on the processors measured faster than fast-math's approximations.
_compile = njit(nogil=True, error_model="numpy")


@_compile
def _where(condition, a, b):
    return a if condition else b


@_compile
def _maximum(a, b):
    return a if a >= b or a != a else b


@_compile
def _minimum(a, b):
    return a if a <= b or a != a else b


@_compile
def _sign(x):
    if x > vocabulary.ZERO:
        return vocabulary.ONE
    if x < vocabulary.ZERO:
        return -vocabulary.ONE
    return x if x != x else vocabulary.ZERO


@_compile
def _sqrt(x):
    return np.sqrt(x)


@_compile
def _absolute(x):
    return np.abs(x)


NUMBA: dict[str, Any] = NUMPY | {
    "where": _where,
    "maximum": _maximum,
    "minimum": _minimum,
    "sign": _sign,
    "sqrt": _sqrt,
    "absolute": _absolute,
}


def rebind(rule: Callable[..., Any], words: Mapping[str, Any]) -> FunctionType:
    """Returns a copy of `rule` that reads its global names from `words`."""
    return FunctionType(rule.__code__, {**rule.__globals__, **words}, rule.__name__, rule.__defaults__)


NUMBA["power"] = _compile(rebind(vocabulary.power, NUMBA))


def settings_of(optimizer: Optimizer, learning_rate: float) -> np.ndarray:
    """Returns the float32 settings of one table for a step with that learning rate."""
    rate = np.float32(learning_rate)
    decay = np.float32(optimizer.weight_decay_factor)
    if optimizer.multiply_weight_decay_factor_by_learning_rate:
        decay *= rate
    limits = [
        open_side if limit is None else limit
        for pair in (optimizer.gradient_clipping_limits, optimizer.clipping_limits)
        for limit, open_side in zip(pair, (-np.inf, np.inf), strict=True)
    ]
    return np.array([rate, decay, *limits, *optimizer.variables()], np.float32)


def compose(optimizer: Optimizer, words: Mapping[str, Any], compile: Callable[..., Any] = lambda f: f) -> Any:
    """Returns `step(w, g, settings, *slots) -> (w, *slots)` in a backend's words, each function passed to `compile`.

    Source: optimization_parameters.proto: limits clip the gradient before it is used and the weight after the update;
    decay is decoupled, w -= decay·w before the rule.
    """
    slots = [f"slot_{k}" for k in range(len(optimizer.slots))]
    constants = optimizer.constants()
    arguments = list(inspect.signature(optimizer.rule).parameters)[3 + len(slots) :]
    variables = [name for name in optimizer.hyper_parameter_names() if name not in constants]
    source = [f"def step({', '.join(['w', 'g', 'settings', *slots])}):"]
    source += [f"{name} = settings[{FIRST_HYPER_PARAMETER + k}]" for k, name in enumerate(variables)]
    if optimizer.gradient_clipping_limits != (None, None):
        source += [f"g = minimum(maximum(g, settings[{GRADIENT_LOWER}]), settings[{GRADIENT_UPPER}])"]
    if optimizer.weight_decay_factor:
        source += [f"w = w - settings[{DECAY}] * w"]
    results = ", ".join(["w", *slots]) + ","
    source += [f"{results} = rule({', '.join(['w', 'g', f'settings[{LEARNING_RATE}]', *slots, *arguments])})"]
    if optimizer.clipping_limits != (None, None):
        source += [f"w = minimum(maximum(w, settings[{LOWER}]), settings[{UPPER}])"]
    source += [f"return {results}"]
    namespace = {**words, **constants, "rule": compile(rebind(optimizer.rule, words))}
    exec("\n    ".join(source), namespace)
    return compile(namespace["step"])


def compiled_step(optimizer: Optimizer) -> int:
    """Returns the address of a compiled `void(record, gradient, dimension, settings)`, which updates one row.

    All arguments are int64: the addresses of the row's record [w | slot | …], its gradient and its table's settings,
    and the dimension. Optimizers that differ only in settings share it, and it is never freed.
    """
    return int(_compiled_step(_structure(optimizer)).address)


def _structure(optimizer: Optimizer) -> Optimizer:
    """Returns `optimizer` without the numbers that reach compiled code as settings."""

    def present(limits: Limits) -> Limits:
        return (None, None) if limits == (None, None) else (0.0, 0.0)

    constants = optimizer.constants()
    defaults = {f.name: f.default for f in fields(optimizer)}
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
        **{name: defaults[name] for name in optimizer.hyper_parameter_names() if name not in constants},
    )


@cache
def _compiled_step(structure: Optimizer) -> Any:
    """The step of `compose` in a loop over a row; called by address, so that the kernel around it is compiled once."""
    columns = ["w", *(f"slot_{k}" for k in range(len(structure.slots)))]
    num_settings = FIRST_HYPER_PARAMETER + len(structure.variables())
    at_d = ", ".join(f"{column}[d]" for column in columns)
    arguments = ", ".join(["w[d]", "g[d]", "s", *(f"{column}[d]" for column in columns[1:])])
    source = [
        "def apply(record, gradient, dimension, settings):",
        f"    stored = floats(settings, {num_settings})",
        # A tuple stays in registers; reading memory in the loop would have to be repeated after every store.
        f"    s = ({', '.join(f'stored[{k}]' for k in range(num_settings))})",
        "    g = floats(gradient, dimension)",
        *(f"    {name} = floats(record + {k * FLOAT_BYTES} * dimension, dimension)" for k, name in enumerate(columns)),
        "    for d in range(dimension):",
        f"        {at_d}, = step({arguments})",
    ]
    namespace = {"floats": floats, "step": compose(structure, NUMBA, _compile)}
    exec("\n".join(source), namespace)
    return cfunc("void(int64, int64, int64, int64)", nopython=True, error_model="numpy")(namespace["apply"])
