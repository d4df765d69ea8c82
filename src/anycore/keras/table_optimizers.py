"""Optimizers of Keras and of `tf.tpu.experimental.embedding` as the optimizers of tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import keras

from anycore.errors import ConfigError
from anycore.keras.rates import Rate
from anycore.optimizers import (
    FTRL,
    Adadelta,
    Adagrad,
    Adam,
    CenteredRMSProp,
    Lion,
    Optimizer,
    RMSProp,
    StochasticGradientDescent,
)
from anycore.optimizers.declarations import DynamicInput


@dataclass(frozen=True)
class TableOptimizer:
    """An optimizer whose learning rate stands beside it, and the slots that start elsewhere than its own do."""

    optimizer: Optimizer
    rate: Rate
    starts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class _Twin:
    """Our class of the same arithmetic: our fields and slots by their names there, and what must be `fixed` there."""

    kind: type[Optimizer]
    fields: Mapping[str, str] = field(default_factory=dict)
    starts: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)


_SAME = {"epsilon": "epsilon"}
_BETAS = {"beta1": "beta_1", "beta2": "beta_2"}
_FTRL = {
    "l1": "l1_regularization_strength",
    "l2": "l2_regularization_strength",
    "lr_power": "learning_rate_power",
    "beta": "beta",
}
_ACCUMULATORS = {"accumulators": "initial_accumulator_value"}
_RMS = {"rho": "rho", "momentum": "momentum", **_SAME}

_KERAS = {
    "SGD": _Twin(StochasticGradientDescent, fixed={"momentum": 0, "nesterov": False}),
    "Adagrad": _Twin(Adagrad, starts=_ACCUMULATORS, fixed={"epsilon": 1e-7}),
    "Adam": _Twin(Adam, {**_BETAS, **_SAME}, fixed={"amsgrad": False}),
    "Ftrl": _Twin(FTRL, _FTRL, _ACCUMULATORS, {"l2_shrinkage_regularization_strength": 0}),
    "RMSprop": _Twin(RMSProp, _RMS, fixed={"centered": False}),
    "Adadelta": _Twin(Adadelta, {"rho": "rho", **_SAME}),
    "Lion": _Twin(Lion, _BETAS),
}
_KERAS_FIXED = {
    "weight_decay": None,
    "clipnorm": None,
    "global_clipnorm": None,
    "use_ema": False,
    "loss_scale_factor": None,
    "gradient_accumulation_steps": None,
}


def as_table_optimizer(optimizer: Any, table: str) -> TableOptimizer:
    """Returns what trains a table: ours, or the twin of a Keras optimizer, of its name, or of one of TensorFlow's TPU.

    A Keras optimizer keeps its arithmetic, but as on a TPU rows that a step does not touch stay as they are, and
    Adagrad has no epsilon.

    Raises: ConfigError for an optimizer or an option of it that has no such twin, by name.
    """
    if isinstance(optimizer, Optimizer):
        if isinstance(optimizer.learning_rate, DynamicInput):
            raise ConfigError(
                f"table {table!r}: a DynamicInput needs an EmbeddingConfig and learning_rates; here give a number, "
                "which may be set later"
            )
        return TableOptimizer(optimizer, Rate(optimizer.learning_rate))
    if isinstance(optimizer, str):
        optimizer = keras.optimizers.get(optimizer)
    if isinstance(optimizer, keras.optimizers.Optimizer):
        return _of_keras(optimizer, table)
    if type(optimizer).__module__.split(".")[0] == "tensorflow":
        return _of_tpu(optimizer, table)
    raise ConfigError(
        f"table {table!r}: there is no {type(optimizer).__name__} for tables, use one of anycore.optimizers, of "
        f"tf.tpu.experimental.embedding, or of keras.optimizers {', '.join(_KERAS)}"
    )


def _of_keras(optimizer: Any, table: str) -> TableOptimizer:
    # Each backend has its own SGD, by that name; a subclass of somebody else's may compute anything.
    kind = type(optimizer)
    name = kind.__name__
    if name not in _KERAS or kind.__module__.split(".")[0] != "keras":
        raise ConfigError(
            f"table {table!r}: there is no {name} for tables, of keras.optimizers use {', '.join(_KERAS)}"
        )
    twin = _KERAS[name]
    if getattr(optimizer, "centered", False):
        twin = _Twin(CenteredRMSProp, _RMS)
    _check(optimizer, table, {**_KERAS_FIXED, **twin.fixed})
    limit = optimizer.clipvalue
    rate = optimizer._learning_rate  # the property is a schedule's value, not the schedule
    betas = (optimizer.beta_1, optimizer.beta_2) if twin.kind is Adam else None
    return TableOptimizer(
        twin.kind(
            gradient_clipping_limits=(None, None) if limit is None else (-limit, limit), **_read(optimizer, twin.fields)
        ),
        Rate(rate if callable(rate) else float(keras.ops.convert_to_numpy(rate)), betas),
        {**_zeros(twin.kind), **_starts(optimizer, table, twin)},
    )


def _of_tpu(optimizer: Any, table: str) -> TableOptimizer:
    # Whoever has such an optimizer has TensorFlow, whatever Keras' backend is.
    from anycore.tensorflow.configuration import table_configs, tables_of

    if getattr(optimizer, "slot_variable_creation_fn", None) is not None:
        raise ConfigError(f"table {table!r}: slot_variable_creation_fn must be None, for a layer has slots of its own")
    any_table = SimpleNamespace(
        name=table,
        vocabulary_size=1,
        dim=1,
        optimizer=optimizer,
        combiner="sum",
        quantization_config=None,
        dtype="float32",
    )
    try:
        (theirs,) = tables_of([SimpleNamespace(table=any_table)], None)
        (config,) = table_configs([theirs])
    except ValueError as error:
        raise ConfigError(f"table {table!r}: {error}") from error
    return TableOptimizer(config.optimizer, Rate(optimizer.learning_rate), theirs.initial_slots)


def _read(optimizer: Any, names: Mapping[str, str]) -> dict[str, Any]:
    return {ours: getattr(optimizer, theirs) for ours, theirs in names.items()}


def _zeros(kind: type[Optimizer]) -> dict[str, float]:
    return {slot.name: 0.0 for slot in kind.slots}


def _starts(optimizer: Any, table: str, twin: _Twin) -> dict[str, float]:
    starts = _read(optimizer, twin.starts)
    for name, value in starts.items():
        if not value > 0:
            raise ConfigError(
                f"table {table!r}: {type(optimizer).__name__}({twin.starts[name]}={value}) must be above 0, for "
                "nothing else keeps a step finite"
            )
    return starts


def _check(optimizer: Any, table: str, fixed: Mapping[str, Any]) -> None:
    for name, value in fixed.items():
        if getattr(optimizer, name) != value:
            raise ConfigError(
                f"table {table!r}: {type(optimizer).__name__}({name}={getattr(optimizer, name)!r}) has no twin for "
                f"tables, where {name} is {value!r}; anycore.optimizers has more"
            )
