"""Frequency-aware Adagrad: its second dynamic input, and what the random scenarios leave out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from side_by_side import EXTREMES, Variables, assert_close, train

from anycore import ConfigError, EmbeddingConfig, EmbeddingEngine, FeatureConfig, TableConfig
from anycore.optimizers import Adagrad, DynamicInput, FrequencyAwareAdagrad
from anycore.optimizers.wire import optimizer_from_proto, optimizer_to_proto

PARAMETERS = {
    "l1_regularization_strength": 0.1,
    "l2_regularization_strength": 0.2,
    "max_lr_multiplier": 1.5,
    "probability_exponent": 0.5,
    "accumulator_decay": 0.9,
    "initial_accumulator_value": 0.5,
    "step_counter": {"tag": 1},
}


@pytest.mark.parametrize("max_lr_multiplier", [1.5, 10.0])
def test_the_reference_with_counted_steps_and_l1(max_lr_multiplier: float) -> None:
    """The sign that l1 multiplies jumps at zero, where some parameters start and none comes near later."""
    rng = np.random.default_rng(0)
    variables: Variables = {
        name: rng.uniform(0.5, 1, (20, 5)).astype(np.float32) for name in ("parameters", "accumulators")
    }
    variables["parameters"][::4] = 0
    variables["counters"] = np.zeros((20, 5))
    parameters = {**PARAMETERS, "max_lr_multiplier": max_lr_multiplier}
    gradients = rng.normal(0, 1, (12, 8, 5)).astype(np.float32)
    inputs = [[0.01, step] for step in range(1, 13)]
    ours, theirs = train({"frequency_aware_adagrad": parameters}, variables, gradients, inputs)
    assert_close(ours, theirs)
    assert_array_equal(ours["counters"], theirs["counters"])


@pytest.mark.parametrize("kind", EXTREMES)
def test_extreme_gradients(kind: str) -> None:
    rng = np.random.default_rng(0)
    variables: Variables = {
        name: rng.uniform(0.5, 1, (9, 5)).astype(np.float32) for name in ("parameters", "accumulators")
    }
    variables["counters"] = np.zeros((9, 5))
    gradients = rng.integers(1, 9, (2, 8, 5)) / 8 * EXTREMES[kind]
    assert_close(*train({"frequency_aware_adagrad": PARAMETERS}, variables, gradients, [[0.25, 1], [0.0, 2]]))


def test_a_table_of_its_own_tag_shares_a_step_with_others() -> None:
    tables = [
        TableConfig("rare", 2, 1, FrequencyAwareAdagrad(learning_rate=0.5, step_counter=DynamicInput(1))),
        TableConfig("plain", 2, 1, Adagrad(learning_rate=DynamicInput(0))),
    ]
    engine = EmbeddingEngine(EmbeddingConfig(tables, [FeatureConfig(table.name, table.name, [1]) for table in tables]))
    for table in tables:
        engine.load(table.name, {"parameters": np.ones((2, 1)), "accumulators": np.zeros((2, 1))})
    engine.enqueue([[0], [1]])
    engine.receive_activations()
    engine.send_gradients([[[2.0]], [[2.0]]], [0.25, 9.0])
    assert engine.retrieve("rare")["parameters"].tolist() == [[1 - 0.5 * 3], [1]]
    assert engine.retrieve("plain")["parameters"].tolist() == [[1], [0.75]]


def test_accumulators_start_from_the_least_value() -> None:
    optimizer = FrequencyAwareAdagrad(initial_accumulator_value=0.75)
    engine = EmbeddingEngine(EmbeddingConfig([TableConfig("t", 2, 1, optimizer)], [FeatureConfig("f", "t", [1])]))
    assert engine.retrieve("t")["accumulators"].tolist() == [[0.75], [0.75]]
    assert engine.retrieve("t")["counters"].tolist() == [[0], [0]]


def test_the_step_counter_on_the_wire() -> None:
    optimizer = FrequencyAwareAdagrad(learning_rate=DynamicInput(0), step_counter=DynamicInput(3))
    message = optimizer_to_proto(optimizer)
    assert message.frequency_aware_adagrad.step_counter.tag == 3
    assert optimizer_from_proto(message).tags == optimizer.tags == {0, 3}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step_counter": 5.0}, r"step_counter must be a DynamicInput, got 5\.0"),
        ({"step_counter": DynamicInput(-1)}, r"step_counter\.tag must not be negative, got -1"),
        (
            {"learning_rate": DynamicInput(2), "step_counter": DynamicInput(2)},
            r"step_counter\.tag must not be the tag of the learning rate, got 2",
        ),
        ({"max_lr_multiplier": 0.0}, r"max_lr_multiplier must be in \(0, inf\), got 0\.0"),
        ({"accumulator_decay": 1.5}, r"accumulator_decay must be in \[0, 1\], got 1\.5"),
    ],
)
def test_refused_values(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^optimizer frequency_aware_adagrad: {message}"):
        FrequencyAwareAdagrad(**changes)
