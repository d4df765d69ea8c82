"""One table trained by the engine and by the float64 reference, with the same steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from reference import ReferenceEngine
from tolerance import STEPS

from anycore import EmbeddingConfig, EmbeddingEngine
from anycore.proto import TPUEmbeddingConfiguration

Variables = dict[str, np.ndarray]

EXTREMES = {"zero": 0.0, "denormal": 2.0**-140, "denormal square": 2.0**-70, "huge": 2.0**60}
"""Factors of gradients near 1."""


def train(
    parameters: dict[str, Any], variables: Variables, gradients: np.ndarray, dynamic_inputs: Sequence[Sequence[float]]
) -> tuple[Variables, Variables]:
    """State variables after the steps, ours and the reference's.

    `parameters` are fields of OptimizationParameters; the learning rate has tag 0. `gradients` [steps, ids, dimension]
    and `dynamic_inputs` [steps][tags] say what each step sends. Ids are random, often equal.
    """
    rows, dimension = variables["parameters"].shape
    table = {
        "name": "table",
        "vocabulary_size": rows,
        "dimension": dimension,
        "optimization_parameters": {"learning_rate": {"dynamic": {"tag": 0}}, **parameters},
    }
    feature = {"name": "feature", "table_id": 0, "input_shape": [gradients.shape[1]]}
    config = TPUEmbeddingConfiguration(
        mode="TRAINING", num_hosts=1, num_tensor_cores=1, table_descriptor=[table], feature_descriptor=[feature]
    )
    engines: tuple[Any, Any] = EmbeddingEngine(EmbeddingConfig.from_proto(config)), ReferenceEngine(config)
    for engine in engines:
        engine.load("table", variables)
        rng = np.random.default_rng(1)
        for gradient, inputs in zip(gradients, dynamic_inputs, strict=True):
            engine.enqueue([rng.integers(0, rows, len(gradient))])
            engine.receive_activations()
            engine.send_gradients([gradient], inputs)
    ours, theirs = (engine.retrieve("table") for engine in engines)
    assert ours.keys() == theirs.keys() == variables.keys()
    return ours, theirs


def assert_close(ours: Variables, theirs: Variables) -> None:
    """Each state variable is near the reference's."""
    for name, values in theirs.items():
        STEPS.assert_close(ours[name], values, name)
