"""Proximal Yogi against the reference: its second moment jumps where it equals g², so both are exact numbers here."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from side_by_side import EXTREMES, assert_close, train


@pytest.mark.parametrize("status", ["ENABLED", "DISABLED"])
@pytest.mark.parametrize(("l1", "l2"), [(0, 0), (0, 0.25), (0.25, 0), (0.25, 0.5)])
def test_the_reference(l1: float, l2: float, status: str) -> None:
    rng = np.random.default_rng(0)
    squares = (rng.integers(1, 9, (9, 5)) / 4) ** 2
    variables = {"parameters": rng.uniform(-1, 1, (9, 5)), "v": squares, "m": rng.integers(-4, 5, (9, 5)) / 4}
    variables["parameters"] = variables["parameters"].astype(np.float32)
    gradients = rng.integers(-4, 5, (4, 8, 5)) / 4
    yogi = {"l1": l1, "l2": l2, "beta1": 0.5, "beta2": 0.75, "epsilon": 1e-3}
    ours, theirs = train(
        {"proximal_yogi": yogi, "gradient_accumulation_status": status}, variables, gradients, [[0.25], [0.05]] * 2
    )
    assert_close(ours, theirs)
    assert_array_equal(ours["v"], theirs["v"])
    assert_array_equal(ours["m"], theirs["m"])


@pytest.mark.parametrize("kind", EXTREMES)
def test_extreme_gradients(kind: str) -> None:
    rng = np.random.default_rng(0)
    variables = {name: rng.uniform(0.5, 1, (9, 5)).astype(np.float32) for name in ("parameters", "v", "m")}
    gradients = rng.integers(1, 9, (2, 8, 5)) / 8 * EXTREMES[kind]
    yogi = {"l1": 0.25, "l2": 0.5, "beta1": 0.5, "beta2": 0.75, "epsilon": 1e-3}
    assert_close(*train({"proximal_yogi": yogi}, variables, gradients, [[0.25], [0.0]]))


def test_a_second_moment_that_equals_the_squared_gradient_stays() -> None:
    variables = {"parameters": np.zeros((1, 3)), "v": np.full((1, 3), 4.0), "m": np.zeros((1, 3))}
    yogi = {"beta1": 0.5, "beta2": 0.75, "epsilon": 0.5}
    ours, _ = train({"proximal_yogi": yogi}, variables, np.array([[[2.0, 1.0, 4.0]]]), [[0.5]])
    assert ours["v"].tolist() == [[4, 3.75, 8]]
