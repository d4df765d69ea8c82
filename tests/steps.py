"""One step of an optimizer on one row, by NumPy and by compiled code, and the comparison of the two."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from anycore.arrays import address
from anycore.kernels.bind import compiled_step
from anycore.optimizers import Optimizer
from anycore.optimizers.backends import NUMPY
from anycore.optimizers.compose import compose, settings_of
from anycore.optimizers.declared import MEAN_SQUARE

Row = np.ndarray
Step = Callable[..., list[Row]]


def numpy_step(optimizer: Optimizer, g: Any, w: Any, *slots: Any, dynamic_inputs: Sequence[float] = ()) -> list[Row]:
    """Returns the new parameters and slots of one row."""
    g, w, *slots = (np.array(value, np.float32) for value in (g, w, *slots))  # type: ignore[assignment]
    extra = [mean_square(optimizer, g)] if MEAN_SQUARE in optimizer.rule_arguments else []
    with np.errstate(all="ignore"):
        return list(compose(optimizer, NUMPY)(w, g, settings_of(optimizer, dynamic_inputs), *slots, *extra))


def mean_square(optimizer: Optimizer, g: Row) -> Any:
    """Returns the mean of the clipped g² in canonical order: column d in lane d % 16, then lane after lane."""
    lower, upper = optimizer.gradient_clipping_limits
    lanes = np.zeros(16, np.float32)
    for d, value in enumerate(g):
        value = value if lower is None else max(value, np.float32(lower))
        value = value if upper is None else min(value, np.float32(upper))
        lanes[d % 16] += value * value
    return np.cumsum(lanes)[-1] / np.float32(len(g))


def numba_step(optimizer: Optimizer, g: Any, w: Any, *slots: Any, dynamic_inputs: Sequence[float] = ()) -> list[Row]:
    """Returns the same by the compiled step, which must write nothing but the record."""
    g, w, *slots = (np.array(value, np.float32) for value in (g, w, *slots))  # type: ignore[assignment]
    settings = settings_of(optimizer, dynamic_inputs)
    record = np.concatenate([[-7], w, *slots, [-7]], dtype=np.float32)
    before = g.copy(), settings.copy()
    step = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)(compiled_step(optimizer))
    step(address(record[1:]), address(g), len(w), address(settings))
    assert record[0] == record[-1] == -7
    for given, after in zip(before, (g, settings), strict=True):
        np.testing.assert_array_equal(after, given)
    return np.split(record[1:-1], np.cumsum([len(w), *map(len, slots)])[:-1])


STEPS: dict[str, Step] = {"numpy": numpy_step, "numba": numba_step}


def assert_same_bits(ours: Sequence[Row], theirs: Sequence[Row]) -> None:
    """Float32, equal, NaN where NaN, and with the same sign of zero."""
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype == np.float32
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(np.signbit(a)[~np.isnan(a)], np.signbit(b)[~np.isnan(b)])


def name_of(optimizer: Optimizer) -> str:
    """Returns the optimizer's name and the fields that are not at their defaults."""
    changed = {f.name: getattr(optimizer, f.name) for f in fields(optimizer) if getattr(optimizer, f.name) != f.default}
    return "-".join([optimizer.wire_name, *(f"{name}={value}" for name, value in changed.items())])
