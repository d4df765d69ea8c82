"""What follows from a config, with the cases of TensorFlow's own unit test."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from reference_config import complete, dynamic_tags
from strategies import configs

from anycore import EmbeddingConfig, FeatureConfig, TableConfig
from anycore.optimizers import Adagrad, DynamicInput, StochasticGradientDescent
from anycore.plan import Plan
from anycore.proto import TPUEmbeddingConfiguration

SGD = StochasticGradientDescent()

SHAPES = {"a": ("T0", (100, 5)), "b": ("T1", (200, 5, 20)), "c": ("T0", (50,)), "d": ("T0", (100, 2, 3))}


def by_feature() -> Plan:
    tables = [TableConfig("T0", 9, 3, SGD), TableConfig("T1", 9, 5, SGD)]
    return Plan(EmbeddingConfig(tables, [FeatureConfig(name, *place) for name, place in SHAPES.items()]))


def by_table() -> Plan:
    tables = [TableConfig("T0", 9, 2, SGD, num_features=3), TableConfig("T1", 9, 4, SGD, num_features=2)]
    return Plan(EmbeddingConfig(tables, batch_size_per_tensor_core=256))


def test_completes_feature_mode() -> None:
    plan = by_feature()
    assert plan.batch_size_per_tensor_core == 50
    assert plan.num_features == (23, 400)
    assert [activation.name for activation in plan.activations] == list(SHAPES)
    assert [f"T{activation.table}" for activation in plan.activations] == [name for name, _ in SHAPES.values()]
    assert [activation.input_shape for activation in plan.activations] == [shape for _, shape in SHAPES.values()]
    assert [activation.shape for activation in plan.activations] == [
        (100, 5, 3),
        (200, 5, 20, 5),
        (50, 3),
        (100, 2, 3, 3),
    ]
    assert [activation.num_samples for activation in plan.activations] == [500, 20_000, 50, 600]


def test_completes_table_mode() -> None:
    plan = by_table()
    assert plan.batch_size_per_tensor_core == 256
    assert plan.num_features == (3, 2)
    assert [(a.name, a.input_shape, a.shape) for a in plan.activations] == [
        ("T0", (768,), (768, 2)),
        ("T1", (512,), (512, 4)),
    ]


def test_rows_of_a_table_stand_side_by_side_in_feature_order() -> None:
    plan = by_feature()
    assert plan.sample_offsets.tolist() == [0, 1150, 21_150]
    assert [activation.first_sample for activation in plan.activations] == [0, 1150, 500, 550]
    assert by_table().sample_offsets.tolist() == [0, 768, 1280]


@pytest.mark.parametrize(
    ("rates", "count"),
    [
        ([0.5], 0),
        ([DynamicInput(0)], 1),
        ([DynamicInput(0), DynamicInput(0)], 1),
        ([DynamicInput(1), 0.5, DynamicInput(0)], 2),
    ],
)
def test_counts_distinct_tags(rates: list[Any], count: int) -> None:
    tables = [TableConfig(f"t{k}", 1, 1, Adagrad(learning_rate=rate), num_features=1) for k, rate in enumerate(rates)]
    assert Plan(EmbeddingConfig(tables, batch_size_per_tensor_core=1)).num_tags == count


@settings(max_examples=60)
@given(configs(TPUEmbeddingConfiguration))
def test_agrees_with_the_reference(wire: Any) -> None:
    plan, layout = Plan(EmbeddingConfig.from_proto(wire)), complete(wire)
    assert (plan.batch_size_per_tensor_core, list(plan.num_features)) == (layout.batch_size, layout.num_features)
    assert [(a.table, a.input_shape) for a in plan.activations] == [(o.table, o.shape) for o in layout.outputs]
    assert plan.num_tags == len(dynamic_tags(wire))
    rows = [(a.table, a.first_sample + k) for a in plan.activations for k in range(a.num_samples)]
    assert sorted(row for _, row in rows) == list(range(len(rows)))
    assert all(plan.sample_offsets[t] <= row < plan.sample_offsets[t + 1] for t, row in rows)
    assert plan.sample_offsets.dtype == np.int64
