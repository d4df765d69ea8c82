"""Tables and features as callers describe them, in the objects of any library, read by their attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import keras

from anycore.config import EmbeddingConfig, FeatureConfig, TableConfig
from anycore.errors import ConfigError
from anycore.initializers import Initializer
from anycore.keras.layer_config import LayerConfig
from anycore.keras.rates import RateValue, with_every_rate_dynamic, with_given_rates
from anycore.keras.table_optimizers import TableOptimizer, as_table_optimizer
from anycore.optimizers.declarations import DynamicInput, SimulatedQuantization


def as_layer_config(
    feature_config: Any, optimizer: Any = None, learning_rates: Mapping[int | str, RateValue] | None = None
) -> LayerConfig:
    """Returns the layer that an EmbeddingConfig or a nest of features describes.

    `optimizer` serves tables without one; `learning_rates`, by tag or table, come before the optimizers' own.

    Raises: ConfigError for what is missing or has no meaning here.
    """
    if isinstance(feature_config, LayerConfig):
        return feature_config
    if not isinstance(feature_config, EmbeddingConfig):
        return _of_nest(feature_config, optimizer, learning_rates)
    if optimizer is not None:
        raise ConfigError("optimizer must be None beside an EmbeddingConfig, whose tables have their own")
    config, rates = with_every_rate_dynamic(feature_config)
    positions = {feature.name: position for position, feature in enumerate(config.features)}
    return LayerConfig(config, positions, with_given_rates(config, rates, learning_rates))


def _of_nest(feature_config: Any, optimizer: Any, learning_rates: Mapping[int | str, RateValue] | None) -> LayerConfig:
    paths, leaves = zip(*keras.tree.flatten_with_path(feature_config), strict=True)
    for path, leaf in zip(paths, leaves, strict=True):
        if not hasattr(leaf, "table") or not hasattr(leaf.table, "vocabulary_size"):
            raise ConfigError(f"feature_config{list(path)} must have a table with a vocabulary_size, got {leaf!r}")
    tables = _Tables(optimizer)
    features = [
        FeatureConfig(leaf.name or "/".join(map(str, path)), tables.name(leaf.table), _input_shape(leaf))
        for path, leaf in zip(paths, leaves, strict=True)
    ]
    config = EmbeddingConfig(tables.configs, features)
    return LayerConfig(
        config,
        keras.tree.pack_sequence_as(feature_config, list(range(len(features)))),
        with_given_rates(config, [optimizer.rate for optimizer in tables.optimizers], learning_rates),
        tables.starts,
        [_row_length(leaf) for leaf in leaves],
    )


class _Tables:
    """The tables in the order in which features name them; equal objects are not one table, the same object is."""

    def __init__(self, default_optimizer: Any) -> None:
        self.configs: list[TableConfig] = []
        self.optimizers: list[TableOptimizer] = []
        self.starts: dict[str, dict[str, Any]] = {}
        self._default_optimizer = default_optimizer
        self._names: dict[int, str] = {}

    def name(self, table: Any) -> str:
        """Returns the name of the table, which is added if it is new."""
        if id(table) not in self._names:
            self._names[id(table)] = self._add(table)
        return self._names[id(table)]

    def _add(self, table: Any) -> str:
        tag = len(self.configs)
        name = table.name or f"table_{tag}"
        chosen = table.optimizer or self._default_optimizer
        if chosen is None:
            raise ConfigError(f"table {name!r} has no optimizer: give it one, or optimizer= to the layer")
        if not isinstance(table.combiner, str):
            raise ConfigError(f"table {name!r}: combiner must be 'sum', 'mean' or 'sqrtn', got {table.combiner!r}")
        if getattr(table, "dtype", "float32") != "float32":
            raise ConfigError(f"table {name!r}: dtype must be float32, got {table.dtype}")
        trained = as_table_optimizer(chosen, name)
        ours = isinstance(table.initializer, Initializer | None)
        self.optimizers.append(trained)
        self.configs.append(
            TableConfig(
                name,
                table.vocabulary_size,
                _dimension(table),
                replace(
                    trained.optimizer,
                    learning_rate=DynamicInput(tag),
                    simulated_quantization=_quantization(table) or trained.optimizer.simulated_quantization,
                ),
                table.combiner,
                table.initializer if ours else None,
            )
        )
        starts = dict(trained.starts) if ours else {"parameters": _callable(table.initializer), **trained.starts}
        self.starts[name] = starts
        return name


def _dimension(table: Any) -> int:
    # As TensorFlow, keras-rs and we call it.
    return next(getattr(table, name) for name in ("dim", "embedding_dim", "dimension") if hasattr(table, name))


def _callable(initializer: Any) -> Any:
    return keras.initializers.get(initializer) if isinstance(initializer, str | dict) else initializer


def _quantization(table: Any) -> SimulatedQuantization | None:
    config = getattr(table, "quantization_config", None)
    return config and SimulatedQuantization((config.lower, config.upper), config.num_buckets)


def _input_shape(feature: Any) -> tuple[int, ...]:
    """Returns the shape of the activations without the dimension; its first entry, the batch, does not count."""
    shape: Any = getattr(feature, "output_shape", None)
    shape = shape.as_list() if getattr(shape, "rank", 0) else shape if isinstance(shape, tuple | list) else None
    if shape is not None:
        # keras-rs counts the dimension, TensorFlow does not.
        shape = shape[:-1] if hasattr(feature, "input_shape") else shape
        return (1, *shape[1:])
    length = getattr(feature, "max_sequence_length", 0)
    return (1, length) if length else (1,)


def _row_length(feature: Any) -> int | None:
    shape: Any = getattr(feature, "input_shape", ())
    return shape[1] if len(shape) > 1 else None
