"""How near two computations of the same must come, stated here for all tests of rules, with the reason.

Stochastic gradient descent, Adagrad and Adam need none between NumPy and Numba: `steps.assert_same_bits`. Both follow
the same operations, each of which IEEE 754 rounds in one way only. Everything else has one of these bounds:
|found - expected| <= rtol·|expected| + atol, NaN and infinite at the same places.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from anycore.optimizers import FTRL, Optimizer


@dataclass(frozen=True)
class Tolerance:
    rtol: float
    atol: float

    def assert_close(self, found: Any, expected: Any, what: str = "") -> None:
        np.testing.assert_allclose(found, expected, self.rtol, self.atol, err_msg=what)


STEP = Tolerance(1e-6, 2e-7)
"""One step: some ten operations are rounded, each by 6e-8, of numbers near 1."""

STEPS = Tolerance(1e-6, 1e-6)
"""Up to ten steps, whose roundings add up: libraries round functions and fuse operations in ways of their own, and take
differences of like numbers."""

STEPS_OF_FTRL = Tolerance(1e-5, 1e-6)
"""Up to ten steps of FTRL, which adds up differences of roots that are near each other: they cost a digit."""

TINY = Tolerance(1e-6, 1.2e-38)
"""A step of numbers of any size, as small as float32 has them; XLA on CPUs takes denormal numbers for zeros."""

FUNCTION = Tolerance(3e-7, 1e-44)
"""One function, such as a power or a sine: NumPy's, Numba's and Triton's err by up to four units in the last place."""

FUNCTION_OF_A_LIBRARY = Tolerance(2e-6, 1e-7)
"""One function of JAX's or torch's: where the argument is large they err by sixteen units in the last place, and near a
zero of the function by as much as beside it."""

HALF_FUNCTION = Tolerance(2**-10, 2**-24)
BRAIN_FUNCTION = Tolerance(2**-7, 1.2e-38)
"""One function whose result is rounded to f16 or bf16: their last place may differ, where float32's does."""

FORMULA = Tolerance(4e-8, 1e-8)
"""A formula in float64, of which some products were rounded to float32."""

FLOAT64 = Tolerance(1e-12, 1e-15)
"""Some operations in float64."""

ENGINE = Tolerance(2e-5, 5e-6)
"""Random configurations and steps of a whole engine: sums of many gradients come first, of numbers up to 100, which may
cancel; atol counts from the largest value of an array."""


def of_steps(optimizer: Optimizer) -> Tolerance:
    """Returns the tolerance of up to ten steps of that optimizer."""
    return STEPS_OF_FTRL if isinstance(optimizer, FTRL) else STEPS
