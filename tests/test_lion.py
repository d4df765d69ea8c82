"""Lion against the reference, on numbers whose arithmetic is exact: a sign then jumps in both or in neither."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from side_by_side import EXTREMES, train

from anycore import ConfigError
from anycore.optimizers import Lion


@pytest.mark.parametrize("use_non_lazy_lion", [False, True])
@pytest.mark.parametrize("status", ["ENABLED", "DISABLED"])
def test_every_bit_of_the_reference(use_non_lazy_lion: bool, status: str) -> None:
    if use_non_lazy_lion and status == "DISABLED":
        with pytest.raises(ConfigError, match="gradient_accumulation_status must be enabled when every row is updated"):
            Lion(use_non_lazy_lion=True, gradient_accumulation=False)
        return
    rng = np.random.default_rng(0)
    variables = {name: rng.integers(-8, 9, (9, 5)) / 8 for name in ("parameters", "momenta")}
    gradients = rng.integers(-8, 9, (4, 8, 5)) / 8
    gradients[1] = 0
    lion = {"beta1": 0.5, "beta2": 0.75, "use_non_lazy_lion": use_non_lazy_lion}
    ours, theirs = train(
        {"lion": lion, "gradient_accumulation_status": status}, variables, gradients, [[0.25], [0.5], [0.125], [0.25]]
    )
    for name, values in theirs.items():
        assert_array_equal(ours[name], values, name)
    assert not np.array_equal(ours["parameters"], variables["parameters"])


@pytest.mark.parametrize("kind", EXTREMES)
def test_extreme_gradients(kind: str) -> None:
    rng = np.random.default_rng(0)
    variables = {"parameters": rng.integers(-8, 9, (9, 5)) / 8, "momenta": np.zeros((9, 5))}
    gradients = rng.integers(1, 9, (2, 8, 5)) / 8 * EXTREMES[kind]
    ours, theirs = train({"lion": {"beta1": 0.5, "beta2": 0.75}}, variables, gradients, [[0.25], [0.0]])
    for name, values in theirs.items():
        assert_array_equal(ours[name], values, name)
    moved = np.unique(variables["parameters"] - ours["parameters"])
    assert moved.tolist() == ([0] if kind == "zero" else [0, 0.25])


def test_a_momentum_that_cancels_the_gradient_leaves_the_parameter() -> None:
    variables = {"parameters": np.full((1, 3), 2.0), "momenta": np.array([[-1.0, -1.0, 0.0]])}
    gradients = np.array([[[1.0, 2.0, 0.0]]])
    ours, _ = train({"lion": {"beta1": 0.5, "beta2": 0.75}}, variables, gradients, [[0.5]])
    assert ours["parameters"].tolist() == [[2, 1.5, 2]]
    assert ours["momenta"].tolist() == [[-0.5, -0.25, 0]]
