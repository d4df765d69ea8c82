"""The words of a rule in each array library, and the update of a library's own arrays.

A library is found by the type of the arrays, and only if the caller has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycore.errors import ConfigError, InputError
from anycore.optimizers import vocabulary
from anycore.optimizers.compose import clip_gradient, compose, rebind, settings_with, structure_of
from anycore.optimizers.declarations import ANY_NUMBER, DynamicInput
from anycore.optimizers.declared import MEAN_SQUARE, DeclaredOptimizer
from anycore.optimizers.source import define
from anycore.optimizers.vocabulary import ONE, ZERO, where

NUMPY: dict[str, Any] = {word: getattr(vocabulary, word) for word in vocabulary.__all__}

LANES = 16
"""How many partial sums a row's mean square has: column d is added to number d % 16, then they are added in order."""


@dataclass(frozen=True, eq=False)
class Library:
    """What the arrays of one library need."""

    array: Any
    words: Mapping[str, Any]
    scalar: Callable[[Any, Any], Any]
    """(a number or an array of one, an array) -> the number in float32, for arithmetic with the array."""
    fill: Callable[[Any, Any], Any]
    """(values, an array) -> a new array of its shape that holds the values, repeated along rows and columns."""
    mean_square: Callable[[Any], Any]
    """g -> the mean of g² over its columns, [rows, 1]."""
    compile: Callable[..., Any] = lambda step: step
    quietly: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Context of a step, in which it neither warns nor records."""
    lacks: Callable[[str], bool] = lambda word: False
    """A word -> whether it has another meaning now."""


def update(
    optimizer: DeclaredOptimizer,
    w: Any,
    g: Any,
    lr: Any,
    slots: Sequence[Any] | Mapping[str, Any],
    dynamic_inputs: Mapping[str, Any],
) -> tuple[Any, Any]:
    """What `Optimizer.update` returns."""
    prefix = f"optimizer {optimizer.wire_name}"
    if optimizer.rule is None:
        raise ConfigError(f"{prefix}: its arithmetic is not published; derive a class with a rule")
    library = _library_of(w, prefix)
    for word in optimizer.rule.__code__.co_names:
        if library.lacks(word):
            raise ConfigError(f"{prefix}: its rule uses {word}, which JAX has only with jax_enable_x64")
    names = [slot.name for slot in optimizer.slots]
    slot_arrays = _in_order(slots, names, prefix)
    _check_arrays(optimizer, library, {"w": w, "g": g, **dict(zip(names, slot_arrays, strict=True))}, prefix)
    dynamic = [name for name, value in optimizer.hyper_parameters().items() if isinstance(value, DynamicInput)]
    if sorted(dynamic) != sorted(dynamic_inputs):
        raise InputError(f"{prefix}: dynamic inputs must be {dynamic or 'none'}, got {sorted(dynamic_inputs)}")
    rate = _number(library, lr, w, f"{prefix}: lr")
    variables = {name: library.scalar(value, w) for name, value in optimizer.variables().items()}
    for name in dynamic:
        variables[name] = _number(library, dynamic_inputs[name], w, f"{prefix}: {name}")
    settings = settings_with(optimizer, rate, variables.values())
    with library.quietly():
        new_w, *new_slots = _step(library, structure_of(optimizer))(w, g, settings, *slot_arrays)
    if isinstance(slots, Mapping):
        return new_w, dict(zip(names, new_slots, strict=True))
    return new_w, new_slots if isinstance(slots, list) else tuple(new_slots)


@cache
def _step(library: Library, structure: DeclaredOptimizer) -> Any:
    """Returns `step(w, g, settings, *slots) -> (w, *slots)`, whose results are new arrays of the arguments' shapes."""
    composed = compose(structure, library.words)
    clip = define("clip", ["g", "settings"], [*clip_gradient(structure), "return g"], dict(library.words))

    def step(w: Any, g: Any, settings: Any, *slots: Any) -> list[Any]:
        row = [library.mean_square(clip(g, settings))] if MEAN_SQUARE in structure.rule_arguments else []
        seen, new = [w, g, *slots], []
        for result, old in zip(composed(w, g, settings, *slots, *row), [w, *slots], strict=True):
            # A rule may return what it was given, or one number for all.
            is_new = getattr(result, "shape", None) == old.shape and all(result is not array for array in seen)
            new.append(result if is_new else library.fill(result, old))
            seen.append(result)
        return new

    return library.compile(step)


def _in_order(slots: Any, names: Sequence[str], prefix: str) -> list[Any]:
    if isinstance(slots, Mapping) and set(slots) == set(names):
        return [slots[name] for name in names]
    if isinstance(slots, list | tuple) and len(slots) == len(names):
        return list(slots)
    got = (
        sorted(slots) if isinstance(slots, Mapping) else len(slots) if isinstance(slots, list | tuple) else type(slots)
    )
    raise InputError(f"{prefix}: slots must be a list, tuple or dict of {names or 'nothing'}, got {got}")


def _check_arrays(optimizer: DeclaredOptimizer, library: Library, arrays: Mapping[str, Any], prefix: str) -> None:
    per_row = {slot.name for slot in optimizer.slots if slot.per_row}
    shape = tuple(arrays["w"].shape)
    if len(shape) != 2 or shape[1] < 1:
        raise InputError(f"{prefix}: w must be [rows, dimension], got shape {shape}")
    for name, array in arrays.items():
        if not isinstance(array, library.array):
            raise InputError(f"{prefix}: {name} must be an array of the library of w, got {type(array)}")
        expected = (shape[0], 1) if name in per_row else shape
        dtype = str(array.dtype).removeprefix("torch.")
        if dtype != "float32" or tuple(array.shape) != expected:
            raise InputError(f"{prefix}: {name} must be float32 {expected}, got {dtype} {tuple(array.shape)}")


def _number(library: Library, value: Any, w: Any, what: str) -> Any:
    is_array = isinstance(value, library.array) and value.shape == ()
    if not is_array and value not in ANY_NUMBER:
        raise InputError(f"{what} must be a finite number, or an array of one in the library of w, got {value!r}")
    return library.scalar(value, w)


def _library_of(array: Any, prefix: str) -> Library:
    for module, make in {"numpy": _numpy, "jax": _jax, "torch": _torch}.items():
        if module in sys.modules and isinstance(array, make().array):
            return make()
    raise InputError(f"{prefix}: w must be an array of numpy, jax or torch, got {type(array)}")


@cache
def _numpy() -> Library:
    return Library(
        array=np.ndarray,
        words=NUMPY,
        scalar=lambda value, like: np.float32(value),
        fill=lambda values, like: np.array(np.broadcast_to(values, like.shape)),
        mean_square=_mean_square,
        quietly=lambda: np.errstate(all="ignore"),
    )


def _mean_square(g: NDArray[np.float32]) -> NDArray[np.float32]:
    lanes = np.zeros((LANES, len(g)), np.float32)
    for first in range(0, g.shape[1], LANES):
        block = g[:, first : first + LANES].T
        lanes[: len(block)] += block * block
    return (reduce(np.add, lanes) / np.float32(g.shape[1]))[:, None]


@cache
def _jax() -> Library:
    """XLA's arithmetic: on CPUs it takes denormal numbers for zeros."""
    jax: Any = sys.modules["jax"]
    jnp, bitcast = jax.numpy, jax.lax.bitcast_convert_type
    functions = _functions_of(jnp) | {
        "erf": jax.lax.erf,
        "bits": lambda x: bitcast(x, np.int64 if x.dtype == np.float64 else np.int32),
        "of_bits": lambda x: bitcast(x, np.float64 if x.dtype == np.int64 else np.float32),
        "quotient": lambda a, b: jax.lax.div(*jnp.broadcast_arrays(a, b)),
    }
    return Library(
        array=jax.Array,
        words=_words(functions),
        scalar=lambda value, like: (
            jnp.asarray(value, np.float32) if isinstance(value, jax.Array) else np.float32(value)
        ),
        fill=lambda values, like: jnp.broadcast_to(jnp.asarray(values, np.float32), like.shape),
        mean_square=lambda g: jnp.mean(g * g, axis=1, keepdims=True),
        compile=jax.jit,
        lacks=lambda word: word in ("float64", "int64") and not jax.config.jax_enable_x64,
    )


@cache
def _torch() -> Library:
    torch: Any = sys.modules["torch"]

    def of_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *operands: function(*map(torch.as_tensor, operands))

    def cbrt(x: Any) -> Any:
        return torch.copysign(torch.pow(torch.abs(x).double(), 1 / 3).to(x.dtype), x)

    def fmod(a: Any, b: Any) -> Any:
        # In float32, torch's own gives NaN where a / b overflows.
        return torch.fmod(a.double(), b.double()).to(torch.result_type(a, b))

    def scalar(value: Any, like: Any) -> Any:
        # Dividing by a Python number, torch would multiply with its rounded reciprocal.
        return (
            value.to(like)
            if isinstance(value, torch.Tensor)
            else torch.full((), float(value), dtype=like.dtype, device=like.device)
        )

    functions = _functions_of(torch) | {
        "cbrt": cbrt,
        "fmod": fmod,
        "rint": torch.round,
        "bits": lambda x: x.view(torch.int64 if x.dtype is torch.float64 else torch.int32),
        "of_bits": lambda x: x.view(torch.float64 if x.dtype is torch.int64 else torch.float32),
        "quotient": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        **{word: partial(_as_type, getattr(torch, word)) for word in ("float32", "float64", "int32", "int64")},
    }
    return Library(
        array=torch.Tensor,
        words=_words({word: of_tensors(function) for word, function in functions.items()}),
        scalar=scalar,
        fill=lambda values, like: torch.as_tensor(values, device=like.device).expand(like.shape).clone(),
        mean_square=lambda g: torch.mean(g * g, dim=1, keepdim=True),
        quietly=torch.no_grad,
    )


def _as_type(dtype: Any, x: Any) -> Any:
    return x.to(dtype)


def _functions_of(module: Any) -> dict[str, Callable[..., Any]]:
    return {word: getattr(module, word) for word in vocabulary.__all__ if callable(getattr(module, word, None))}


def _words(functions: dict[str, Callable[..., Any]]) -> dict[str, Any]:
    """Returns all words, with NumPy's meaning where a library's function has another or none."""

    def chosen(condition: Any, a: Any, b: Any) -> Any:
        if isinstance(condition, bool | np.bool_):
            return a if condition else b
        return functions["where"](condition, a, b)

    constants = {word: value for word, value in NUMPY.items() if isinstance(value, np.float32)}
    words = {**functions, **constants, "where": chosen}
    words["sign"] = rebind(_sign, words)
    words["power"] = rebind(vocabulary.power, words)
    return words


def _sign(x: Any) -> Any:
    return where(x > ZERO, ONE, where(x < ZERO, -ONE, where(x == ZERO, ZERO, x)))
