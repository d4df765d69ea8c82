"""A small engine to try calls on, and how to compare what engines hold."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycore import EmbeddingConfig, EmbeddingEngine, FeatureConfig, TableConfig
from anycore.optimizers import Optimizer, StochasticGradientDescent

State = dict[str, dict[str, NDArray[np.float32]]]


def state(engine: EmbeddingEngine) -> State:
    return {table.name: engine.retrieve(table.name) for table in engine.config.tables}


def assert_same_bits(a: State, b: State) -> None:
    for table, variables in a.items():
        for name, values in variables.items():
            np.testing.assert_array_equal(values.view(np.uint32), b[table][name].view(np.uint32), f"{table} {name}")


def small_engine(optimizer: Optimizer | None = None, **options: Any) -> EmbeddingEngine:
    """One table of four rows [0, 1], [2, 3], … and one feature of two samples."""
    optimizer = optimizer or StochasticGradientDescent(learning_rate=1.0)
    config = EmbeddingConfig([TableConfig("t", 4, 2, optimizer)], [FeatureConfig("f", "t", [2])], **options)
    engine = EmbeddingEngine(config, timeout=0.05)
    engine.load("t", {"parameters": np.arange(8).reshape(4, 2)})
    return engine


def parameters(engine: EmbeddingEngine) -> list[list[float]]:
    return engine.retrieve("t")["parameters"].tolist()
