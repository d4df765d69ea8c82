"""The frequency estimator against the reference, on numbers whose arithmetic is exact: outliers are so in both."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from side_by_side import train

from anycore import ConfigError, TableConfig
from anycore.optimizers import DynamicInput, FrequencyEstimator
from anycore.optimizers.wire import optimizer_from_proto, optimizer_to_proto

ESTIMATOR = {"tau": 0.25, "max_delta": 16, "outlier_threshold": 2}


def test_every_bit_of_the_reference() -> None:
    rng = np.random.default_rng(0)
    variables = {"parameters": rng.integers(1, 17, (40, 1)), "last_hit_step": rng.integers(0, 10, (40, 1))}
    gradients = rng.normal(0, 1, (6, 24, 1)).astype(np.float32)
    ours, theirs = train(
        {"frequency_estimator": ESTIMATOR}, variables, gradients, [[step] for step in (10, 11, 13, 17, 25, 60)]
    )
    for name, values in theirs.items():
        assert_array_equal(ours[name], values, name)


@pytest.mark.parametrize(
    ("w", "last_hit_step", "expected"),
    [
        (4, 92, 8),  # a distance of 8, just the threshold
        (4, 93, 4.75),
        (4, 0, 16),
        (12, 80, 13),
        (0, 100, 0),  # twice in a step
    ],
)
def test_an_outlier_replaces_the_estimate(w: float, last_hit_step: float, expected: float) -> None:
    variables = {"parameters": np.full((1, 1), w), "last_hit_step": np.full((1, 1), last_hit_step)}
    ours, _ = train({"frequency_estimator": ESTIMATOR}, variables, np.ones((1, 1, 1)), [[100]])
    assert ours["parameters"].tolist() == [[expected]]
    assert ours["last_hit_step"].tolist() == [[100]]


def test_the_step_comes_as_a_learning_rate() -> None:
    assert FrequencyEstimator().learning_rate == DynamicInput(0)
    assert optimizer_from_proto(optimizer_to_proto(FrequencyEstimator())).learning_rate == DynamicInput(0)


def test_a_table_has_one_column() -> None:
    TableConfig("t", 4, 1, FrequencyEstimator())
    message = r"table 't': frequency_estimator needs dimension 1, got 2 \(TableDescriptor\.dimension\)"
    with pytest.raises(ConfigError, match=message):
        TableConfig("t", 4, 2, FrequencyEstimator())
