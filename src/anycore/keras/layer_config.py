"""All that a layer is made of, whatever objects the caller described it with, and its form in a saved model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import keras

from anycore import initializers
from anycore.config import EmbeddingConfig, FeatureConfig, TableConfig
from anycore.errors import ConfigError
from anycore.keras.inputs import Form, Tensors
from anycore.keras.rates import Rate
from anycore.optimizers import OPTIMIZERS, Optimizer
from anycore.optimizers.declarations import DynamicInput, SimulatedQuantization

_INITIALIZERS = {
    kind.__name__: kind for kind in (initializers.Constant, initializers.Uniform, initializers.TruncatedNormal)
}
_VALUES = {kind.__name__: kind for kind in (DynamicInput, SimulatedQuantization)}


@dataclass(frozen=True)
class LayerConfig:
    """Tables and features, the nest that inputs and activations come in, and what the wire does not carry."""

    config: EmbeddingConfig
    """Of the input shapes all but the first entry counts, for a layer takes batches of any size."""
    structure: Any
    """The nest of inputs and activations, with the position of each feature in `config.features`."""
    rates: Sequence[Rate]
    """By tag."""
    starts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Table → state variable → a number, or a Keras initializer `(shape, dtype)`, where `config` does not say it."""

    row_lengths: Sequence[int | None] = ()
    """By feature: the most ids of a ragged row, where the caller said so."""

    def __post_init__(self) -> None:
        config = self.config
        if not config.features:
            raise ConfigError(
                "a Keras layer needs a config with features, each a piece of its input and output "
                "(TPUEmbeddingConfiguration.feature_descriptor)"
            )
        if config.num_tensor_cores != 1:
            raise ConfigError(
                f"a Keras layer is one core, got {config.num_tensor_cores} (TPUEmbeddingConfiguration.num_tensor_cores)"
            )
        if config.pipeline_execution_with_tensor_core:
            raise ConfigError(
                "a Keras model finishes a step before it begins the next, so that nothing can be pipelined "
                "(TPUEmbeddingConfiguration.pipeline_execution_with_tensor_core)"
            )

    def tables_of_features(self) -> list[TableConfig]:
        """Returns the table of each feature."""
        return [self.config.tables[self.config.table_id(feature.table)] for feature in self.config.features]

    def forms(self, tensors: Sequence[Tensors]) -> list[Form]:
        """Returns the forms of the features' ids. Raises: InputError when they do not fit a feature."""
        forms = []
        for feature, table, each in zip(self.config.features, self.tables_of_features(), tensors, strict=True):
            form = Form(
                feature.name, each.kind, each.shape, each.weights is not None, tuple(feature.input_shape[1:]), table
            )
            form.cells(form.shape)
            forms.append(form)
        return forms

    def to_json(self) -> dict[str, Any]:
        """Returns plain data. Raises: ConfigError for a part that has no such form, by name."""
        return {
            "tables": [_table_to_json(table) for table in self.config.tables],
            "features": [_fields_to_json(feature) for feature in self.config.features],
            "mode": int(self.config.mode),
            "structure": as_lists(self.structure),
            "rates": [rate.to_json() for rate in self.rates],
            "starts": keras.tree.map_structure(keras.saving.serialize_keras_object, dict(self.starts)),
            "row_lengths": list(self.row_lengths),
        }

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> LayerConfig:
        """Returns what `to_json` was of."""
        return cls(
            EmbeddingConfig(
                [_table_from_json(table) for table in json["tables"]],
                [FeatureConfig(**feature) for feature in json["features"]],
                mode=json["mode"],
            ),
            json["structure"],
            [Rate.from_json(rate) for rate in json["rates"]],
            {
                table: {name: keras.saving.deserialize_keras_object(value) for name, value in starts.items()}
                for table, starts in json["starts"].items()
            },
            json["row_lengths"],
        )


def as_lists(nest: Any) -> Any:
    """Returns the nest with a list for every tuple: Keras makes lists of tuples when it loads a model."""
    if isinstance(nest, Mapping):
        return {key: as_lists(part) for key, part in nest.items()}
    return [as_lists(part) for part in nest] if isinstance(nest, list | tuple) else nest


def _table_to_json(table: TableConfig) -> dict[str, Any]:
    return {
        **{name: getattr(table, name) for name in ("name", "vocabulary_size", "dimension", "combiner")},
        "optimizer": _optimizer_to_json(table),
        "initializer": _initializer_to_json(table.initializer),
    }


def _table_from_json(json: Mapping[str, Any]) -> TableConfig:
    kwargs = dict(json)
    kwargs["optimizer"] = _optimizer_from_json(json["optimizer"])
    kwargs["initializer"] = _initializer_from_json(json["initializer"])
    return TableConfig(**kwargs)


def _optimizer_to_json(table: TableConfig) -> dict[str, Any]:
    optimizer = table.optimizer
    own = OPTIMIZERS.get(optimizer.wire_name) is type(optimizer)
    name = optimizer.wire_name if own else type(optimizer).__name__
    values = {name: _value_to_json(value) for name, value in _changed(optimizer).items()}
    for field_name, value in values.items():
        if not isinstance(value, bool | int | float | str | dict | list | None):
            raise ConfigError(f"table {table.name!r}: optimizer {name}: {field_name} cannot be saved, got {value!r}")
    return {"name": name, **values}


def _optimizer_from_json(json: Mapping[str, Any]) -> Optimizer:
    values = {name: _value_from_json(value) for name, value in json.items() if name != "name"}
    name = json["name"]
    kind = OPTIMIZERS.get(name) or keras.saving.get_registered_object(name)
    if kind is None:
        raise ConfigError(f"there is no optimizer {name!r}: load the model with custom_objects={{{name!r}: YourClass}}")
    return kind(**values)


def _changed(value: Any) -> dict[str, Any]:
    """Returns the fields of a dataclass that are not at their default."""
    return {f.name: getattr(value, f.name) for f in fields(value) if getattr(value, f.name) != f.default}


def _fields_to_json(value: Any) -> dict[str, Any]:
    return {name: _value_to_json(part) for name, part in _changed(value).items()}


def _value_to_json(value: Any) -> Any:
    if is_dataclass(value):
        return {"class": type(value).__name__, **_fields_to_json(value)}
    return list(value) if isinstance(value, tuple) else value


def _value_from_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        parts = {name: _value_from_json(part) for name, part in value.items() if name != "class"}
        return {**_VALUES, **_INITIALIZERS}[value["class"]](**parts)
    return tuple(value) if isinstance(value, list) else value


def _initializer_to_json(initializer: Any) -> Any:
    if initializer is None or type(initializer) in _INITIALIZERS.values():
        return _value_to_json(initializer)
    if isinstance(initializer, initializers.RowFunction):
        initializer = initializer.function
    return {"function": keras.saving.serialize_keras_object(initializer)}


def _initializer_from_json(json: Any) -> Any:
    if json is not None and "function" in json:
        return keras.saving.deserialize_keras_object(json["function"])
    return _value_from_json(json)
