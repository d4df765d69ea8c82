"""The arrays that activations are written to: new ones, or a caller's, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycore import recycled
from anycore.arrays import check_sequence
from anycore.errors import InputError
from anycore.kernels.pointers import FLOAT_BYTES
from anycore.plan import Plan


def new_activations(plan: Plan) -> list[NDArray[np.float32]]:
    """Returns one uninitialised array per activation, in the plan's order, all in one stretch of memory."""
    *firsts, size = plan.activation_floats
    block = recycled.empty(size, np.float32)
    return [
        np.ndarray(activation.shape, np.float32, block, first * FLOAT_BYTES)
        for activation, first in zip(plan.activations, firsts, strict=True)
    ]


def check_activations(plan: Plan, out: Sequence[Any] | None) -> None:
    """Raises InputError unless `out` holds one array per activation that it can be written to as it lies in memory.

    None, which stands for new arrays, passes.
    """
    if out is None:
        return
    check_sequence(out, "out")
    if len(out) != len(plan.activations):
        raise InputError(f"out must hold {len(plan.activations)} arrays, one per activation, got {len(out)}")
    for activation, array in zip(plan.activations, out, strict=True):
        if (
            type(array) is not np.ndarray
            or array.dtype != np.float32
            or array.shape != activation.shape
            or not array.flags.carray
        ):
            got = f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
            raise InputError(
                f"out of {activation.name!r} must be a writeable C-contiguous float32 array of shape "
                f"{list(activation.shape)}, got {got}"
            )
