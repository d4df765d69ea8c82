"""The gradients that a core sends: checked against the activations, then known by address alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anycore.arrays import address, as_array, as_floats, check_sequence, is_plain
from anycore.errors import InputError
from anycore.kernels.pointers import FLOAT_BYTES
from anycore.plan import Activation, Plan


class Gradient(NamedTuple):
    """The gradient of one activation: one row of `dimension` float32 every `row_bytes` from `address` on."""

    array: NDArray[np.float32]
    """Keeps the memory alive."""
    address: int
    row_bytes: int


def read_gradients(plan: Plan, gradients: Sequence[Any] | Mapping[str, Any], *, copy: bool) -> list[Gradient | None]:
    """Returns one gradient per activation, None for a None; without `copy` it is the caller's memory where that fits.

    Raises: InputError when the count or a shape differs from the activations'.
    """
    if isinstance(gradients, Mapping):
        names = [activation.name for activation in plan.activations]
        if set(gradients) != set(names) or len(set(names)) != len(names):
            raise InputError(f"gradients must be named {names}, got {list(gradients)} (inputs)")
        gradients = [gradients[name] for name in names]
    check_sequence(gradients, "gradients", "a sequence or a mapping")
    if len(gradients) != len(plan.activations):
        raise InputError(
            f"expected {len(plan.activations)} gradients, as many as activations, got {len(gradients)} (inputs)"
        )
    return [
        None if gradient is None else _read(activation, gradient, copy)
        for activation, gradient in zip(plan.activations, gradients, strict=True)
    ]


def read_learning_rates(plan: Plan, learning_rates: Sequence[Any]) -> tuple[float, ...]:
    """Returns the learning rate of every tag, rounded to float32.

    Raises: InputError for a wrong count, a rate that is no scalar or one that is not finite.
    Source: `SendTPUEmbeddingGradients.learning_rates`, TensorFlow 2.21: one scalar a tag, in tag order.
    """
    check_sequence(learning_rates, "learning_rates")
    if len(learning_rates) != plan.num_tags:
        raise InputError(
            f"expected {plan.num_tags} learning_rates, one for each dynamic learning rate tag of the config, "
            f"got {len(learning_rates)} (OptimizerDynamicInput.tag)"
        )
    rates = []
    for tag, value in enumerate(learning_rates):
        rate = as_floats(value, f"learning_rates[{tag}]")
        # as_floats turns a scalar into an array of one; its own shape is what counts.
        if as_array(value, f"learning_rates[{tag}]").ndim != 0:
            raise InputError(f"learning_rates[{tag}] must be a scalar, got shape {list(rate.shape)}")
        if not np.isfinite(rate).all():
            raise InputError(f"learning_rates[{tag}] must be finite, got {float(rate.item())}")
        rates.append(float(rate.item()))
    return tuple(rates)


def _is_side_by_side(array: NDArray[np.float32]) -> bool:
    return array.strides[1] == FLOAT_BYTES and array.flags.aligned


def _read(activation: Activation, gradient: Any, copy: bool) -> Gradient:
    row_bytes = activation.dimension * FLOAT_BYTES
    if not copy and is_plain(gradient, np.float32) and gradient.shape == activation.shape:
        return Gradient(gradient, address(gradient), row_bytes)
    what = f"gradient of {activation.name!r}"
    array = as_array(gradient, what)
    if array.shape != activation.shape:
        raise InputError(
            f"{what} must have the shape of its activations, {list(activation.shape)}, got {list(array.shape)} (inputs)"
        )
    if not copy and array.dtype == np.float32 and array.ndim == 2 and _is_side_by_side(array):
        # Columns of a wider array serve as they are.
        return Gradient(array, address(array), array.strides[0])
    values = as_floats(array, what)
    array = values.copy() if copy else values
    return Gradient(array, address(array), row_bytes)
