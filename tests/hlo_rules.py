"""Rules of programs without slots, run by NumPy and compiled by Numba."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import njit

from anycore.kernels.bind import NUMBA
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


BACKENDS: dict[str, Callable[..., Array]] = {"numpy": in_numpy, "numba": in_numba}
