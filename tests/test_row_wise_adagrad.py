"""Row-wise Adagrad, and with it slots of one number a row and the row's mean of squared gradients."""

from __future__ import annotations

import numpy as np
import pytest
from tolerance import STEPS

from anycore import EmbeddingConfig, EmbeddingEngine, FeatureConfig, InputError, Ragged, TableConfig
from anycore.optimizers.row_wise_adagrad import RowWiseAdagrad


@pytest.mark.parametrize("dimension", [1, 3, 15, 16, 17, 64, 130])
@pytest.mark.parametrize("limits", [(None, None), (-0.5, 0.5)])
def test_five_steps(dimension: int, limits: tuple[float | None, float | None]) -> None:
    optimizer = RowWiseAdagrad(learning_rate=0.1, epsilon=1e-3, gradient_clipping_limits=limits)
    config = EmbeddingConfig([TableConfig("t", 9, dimension, optimizer)], [FeatureConfig("f", "t", [4])])
    engine = EmbeddingEngine(config)
    random = np.random.default_rng(0)
    w = random.standard_normal((9, dimension)).astype(np.float32).astype(np.float64)
    accumulators = np.full((9, 1), 0.25)
    engine.load("t", {"parameters": w, "accumulators": accumulators})
    for _ in range(5):
        ids = random.integers(0, 9, 8)
        engine.enqueue([Ragged([0, 2, 4, 6, 8], ids)])
        engine.receive_activations()
        gradients = random.standard_normal((4, dimension)).astype(np.float32)
        engine.send_gradients([gradients])
        for row in np.unique(ids):
            g = gradients[np.flatnonzero(ids == row) // 2].astype(np.float64).sum(axis=0)
            if limits != (None, None):
                g = np.clip(g, *limits)
            accumulators[row] += np.mean(g**2)
            w[row] -= 0.1 * g / (np.sqrt(accumulators[row]) + 1e-3)
    found = engine.retrieve("t")
    assert found["accumulators"].shape == (9, 1)
    STEPS.assert_close(found["accumulators"], accumulators)
    STEPS.assert_close(found["parameters"], w)


def test_accumulators_are_one_column() -> None:
    config = EmbeddingConfig([TableConfig("t", 4, 3, RowWiseAdagrad())], [FeatureConfig("f", "t", [1])])
    engine = EmbeddingEngine(config)
    with pytest.raises(InputError, match=r"accumulators must have shape \(4, 1\), got \(4, 3\)"):
        engine.load("t", {"accumulators": np.ones((4, 3))})
