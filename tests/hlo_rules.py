"""Rules of programs without slots, run by every backend."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
import torch
from numba import njit

from anycore.kernels.bind import NUMBA
from anycore.optimizers import backends
from anycore.optimizers.compose import rebind
from anycore.optimizers.hlo import Program

NUMBERS = np.array(
    [
        0.0,
        1.0,
        -1.0,
        0.3,
        -0.3,
        0.5,
        -0.5,
        1.5,
        -2.5,
        2.5,
        0.49999997,
        8388609.0,
        80.0,
        -80.0,
        1e-30,
        -1e-30,
        3e38,
        np.inf,
        -np.inf,
        np.nan,
    ],
    np.float32,
)
G, W = (axis.ravel() for axis in np.meshgrid(NUMBERS, NUMBERS))
"""All pairs of them."""

Array = np.ndarray


def in_numpy(translated: Program, g: Array = G, w: Array = W) -> Array:
    with np.errstate(all="ignore"):
        (result,) = translated.rule(w, g, np.float32(0), **translated.constants)
    return np.broadcast_to(result, w.shape)


def in_numba(translated: Program, g: Array = G, w: Array = W) -> Array:
    rule = njit(error_model="numpy")(rebind(translated.rule, NUMBA))
    constants = list(translated.constants.values())
    results = np.array([rule(*pair, np.float32(0), *constants) for pair in zip(w, g, strict=True)], np.float32)
    return results[:, 0]


def in_library(
    library: backends.Library, array: Callable[[Array], Any], translated: Program, *operands: Array
) -> Array:
    g, w = operands or (G, W)
    rule = rebind(translated.rule, library.words)
    (result,) = rule(array(w.copy()), array(g.copy()), np.float32(0), **translated.constants)
    return np.broadcast_to(np.asarray(result), w.shape)


BACKENDS: dict[str, Callable[..., Array]] = {
    "numpy": in_numpy,
    "numba": in_numba,
    "jax": partial(in_library, backends._jax(), jax.numpy.array),
    "torch": partial(in_library, backends._torch(), torch.tensor),
}
