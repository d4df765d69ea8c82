"""Completion of configurations, with the cases of TensorFlow's own unit test."""

from __future__ import annotations

from typing import Any

import pytest
from reference_config import complete, dynamic_tags

from anycore.proto import TPUEmbeddingConfiguration


def described(
    shapes: list[tuple[int, list[int]]], num_tables: int, batch_size: int = 0, num_features: tuple = ()
) -> Any:
    tables = [{"name": f"T{t}", "num_features": n} for t, n in enumerate(num_features or [0] * num_tables)]
    features = [{"table_id": t, "input_shape": shape} for t, shape in shapes]
    return TPUEmbeddingConfiguration(
        table_descriptor=tables, feature_descriptor=features, batch_size_per_tensor_core=batch_size
    )


def test_completes_feature_mode() -> None:
    shapes = [(0, [100, 5]), (1, [200, 5, 20]), (0, [50]), (0, [100, 2, 3])]
    layout = complete(described(shapes, 2))
    assert (layout.batch_size, layout.num_features) == (50, [23, 400])
    assert [(output.table, list(output.shape)) for output in layout.outputs] == shapes


def test_completes_table_mode() -> None:
    layout = complete(described([], 2, 256, (3, 2)))
    assert (layout.batch_size, layout.num_features, layout.outputs) == (256, [3, 2], [(0, (768,)), (1, (512,))])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (described([], 1, 0, (1,)), "Invalid batch_size_per_tensor_core 0"),
        (described([], 2, 4, (1, 0)), "Invalid num_features"),
        (described([(0, [4])], 1, 4), "must NOT be populated"),
        (described([(0, [4])], 1, 0, (1,)), "must NOT be populated"),
        (described([(1, [4])], 1), "Invalid table_id 1"),
        (described([(-1, [4])], 1), "Invalid table_id -1"),
        (described([(0, [])], 1), "Invalid input_shape"),
        (described([(0, [4, 0])], 1), "Invalid input_shape"),
        (described([(0, [4])], 2), "No feature_descriptor fields found for table T1"),
    ],
)
def test_refuses_incomplete_configurations(config: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        complete(config)


def test_refuses_gaps_between_tags() -> None:
    tables = [{"optimization_parameters": {"learning_rate": {"dynamic": {"tag": tag}}}} for tag in (0, 2, 2)]
    with pytest.raises(ValueError, match=r"without gaps, got \[0, 2\]"):
        dynamic_tags(TPUEmbeddingConfiguration(table_descriptor=tables))
    assert dynamic_tags(TPUEmbeddingConfiguration(table_descriptor=tables[:1])) == [0]
