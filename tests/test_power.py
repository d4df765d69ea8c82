from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from anycore.kernels.power import raised

SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, -2.0, -3.5, 3.4e38, 1e-38]


@pytest.mark.parametrize(
    "exponent",
    [0.3, -0.3, 0.1, -0.1, 0.01, -0.05, 1e-3, 1 / 3, -1 / 3, 0.7, 2.0, 3.0, -1.0, -2.0, 0.0, 5.0, -7.5, 10.0],
)
def test_the_nearest_float32_and_numpys_special_cases(exponent: float) -> None:
    y = np.float32(exponent)
    compiled = njit(lambda x: raised(x, y))
    base = np.concatenate([np.random.default_rng(0).lognormal(0, 15, 2000), SPECIAL]).astype(np.float32)
    found = np.array([compiled(x) for x in base], np.float32)
    with np.errstate(all="ignore"):
        exact = base.astype(np.float64) ** np.float64(y)
        nearest = exact.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(nearest))
    np.testing.assert_array_equal(np.signbit(found)[~np.isnan(found)], np.signbit(nearest)[~np.isnan(found)])
    finite = np.isfinite(nearest)
    np.testing.assert_array_equal(found[~finite & ~np.isnan(found)], nearest[~finite & ~np.isnan(found)])
    units = np.abs(found[finite] - exact[finite]) / np.spacing(np.abs(nearest[finite])).astype(np.float64)
    # In float32 for exponents up to 1 in size, in float64 beyond.
    assert units.max() <= (3.5 if abs(exponent) <= 1 else 0.51)
