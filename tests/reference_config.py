"""What a TPUEmbeddingConfiguration leaves out, completed, for messages of any class with the wire's field names.

Source: tpu_embedding_configuration.proto and optimization_parameters.proto, TensorFlow 2.21.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, inf, prod
from typing import Any, NamedTuple


class Output(NamedTuple):
    """One activation tensor: of a feature, or in table mode of a table."""

    table: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """A configuration with the fields completed that it may leave out."""

    batch_size: int
    num_features: list[int]
    outputs: list[Output]


def complete(config: Any) -> Layout:
    """The completed batch size, rows per sample of each table, and activation tensors.

    Raises: ValueError where the configuration mixes the two modes or leaves something out.
    Source: PopulateMissingFieldsInTPUEmbeddingConfig, TensorFlow 2.21.
    """
    tables = config.table_descriptor
    num_features = [table.num_features for table in tables]
    outputs = [Output(feature.table_id, tuple(feature.input_shape)) for feature in config.feature_descriptor]
    if not outputs:
        batch_size = config.batch_size_per_tensor_core
        if batch_size <= 0:
            raise ValueError(f"Invalid batch_size_per_tensor_core {batch_size}")
        if any(n <= 0 for n in num_features):
            raise ValueError(f"Invalid num_features {num_features}")
        return Layout(batch_size, num_features, [Output(t, (batch_size * n,)) for t, n in enumerate(num_features)])
    if config.batch_size_per_tensor_core or any(num_features):
        raise ValueError("batch_size_per_tensor_core and num_features must NOT be populated")
    for output in outputs:
        if not 0 <= output.table < len(tables):
            raise ValueError(f"Invalid table_id {output.table}")
        if not output.shape or min(output.shape) <= 0:
            raise ValueError(f"Invalid input_shape {output.shape}")
    batch_size = gcd(*(prod(output.shape) for output in outputs))
    for t, table in enumerate(tables):
        rows = sum(prod(output.shape) for output in outputs if output.table == t)
        if not rows:
            raise ValueError(f"No feature_descriptor fields found for table {table.name}")
        num_features[t] = rows // batch_size
    return Layout(batch_size, num_features, outputs)


def limits(message: Any) -> tuple[float, float]:
    """The lower and upper limit of a ClippingLimits message, infinite where unset."""
    lower = message.lower.value if message.HasField("lower") else -inf
    return lower, (message.upper.value if message.HasField("upper") else inf)


def dynamic_tags(config: Any) -> list[int]:
    """The distinct learning-rate tags of all tables, ascending; they must be 0 to n - 1."""
    tags = set()
    for table in config.table_descriptor:
        parameters = table.optimization_parameters
        if parameters.learning_rate.WhichOneof("learning_rate") == "dynamic":
            tags.add(parameters.learning_rate.dynamic.tag)
        if parameters.WhichOneof("parameters") == "frequency_aware_adagrad":
            tags.add(parameters.frequency_aware_adagrad.step_counter.tag)
    if sorted(tags) != list(range(len(tags))):
        raise ValueError(f"learning-rate tags must be 0 to n - 1 without gaps, got {sorted(tags)}")
    return sorted(tags)
