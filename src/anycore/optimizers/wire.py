"""Optimizer dataclasses from and to the `OptimizationParameters` message, field by field of the same name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from anycore.errors import ConfigError
from anycore.optimizers import OPTIMIZERS
from anycore.optimizers.declarations import DynamicInput, Limits, SimulatedQuantization
from anycore.optimizers.declared import added_fields
from anycore.optimizers.optimizer import Optimizer
from anycore.proto import OptimizationParameters

_UNSPECIFIED, _ENABLED, _DISABLED, _MIGRATION_ONLY = range(4)


def optimizer_from_proto(message: Any, optimizers: Mapping[str, type[Optimizer]] = OPTIMIZERS) -> Optimizer:
    """Returns the optimizer that an `OptimizationParameters` message describes, of the class that `optimizers` names.

    Raises: ConfigError when no algorithm or no learning rate is set, or the algorithm or a value is refused.
    Source: optimization_parameters.proto, TensorFlow 2.21; an unspecified accumulation status means enabled, an
    unspecified packing or replication status means disabled.
    """
    wire_name = message.WhichOneof("parameters")
    if wire_name is None:
        raise ConfigError("No optimization algorithm specified: set one of OptimizationParameters.parameters")
    if wire_name not in optimizers:
        raise ConfigError(
            f"optimizer {wire_name} is not supported, use one of {', '.join(sorted(optimizers))} "
            "(OptimizationParameters.parameters)"
        )
    optimizer = optimizers[wire_name]
    hyper_parameters = getattr(message, wire_name)
    return optimizer(
        learning_rate=_learning_rate(message.learning_rate),
        clipping_limits=_limits(message.clipping_limits),
        gradient_clipping_limits=_limits(message.gradient_clipping_limits),
        weight_decay_factor=message.weight_decay_factor,
        multiply_weight_decay_factor_by_learning_rate=message.multiply_weight_decay_factor_by_learning_rate,
        gradient_accumulation=_status(message, "gradient_accumulation_status", _DISABLED) != _DISABLED,
        simulated_quantization=_quantization(message.simulated_quantization),
        hot_id_replication=_status(message.hot_id_replication_configuration, "status", _MIGRATION_ONLY) == _ENABLED,
        low_dimensional_packing=_status(message, "low_dimensional_packing_status", _DISABLED) == _ENABLED,
        **{
            name: _value(getattr(hyper_parameters, name))
            for name in added_fields(optimizer)
            if hasattr(hyper_parameters, name)
        },
    )


def optimizer_to_proto(optimizer: Optimizer) -> Any:
    """Returns the `OptimizationParameters` message that describes `optimizer`.

    Raises: ConfigError for an optimizer that the proto does not know.
    """
    if not isinstance(optimizer, OPTIMIZERS.get(optimizer.wire_name, ())):
        raise ConfigError(
            f"optimizer {optimizer.wire_name} has no form on the wire (OptimizationParameters.parameters)"
        )
    message = OptimizationParameters()
    if isinstance(optimizer.learning_rate, DynamicInput):
        message.learning_rate.dynamic.tag = optimizer.learning_rate.tag
    else:
        message.learning_rate.constant = optimizer.learning_rate
    _set_limits(message, "clipping_limits", optimizer.clipping_limits)
    _set_limits(message, "gradient_clipping_limits", optimizer.gradient_clipping_limits)
    message.weight_decay_factor = optimizer.weight_decay_factor
    message.multiply_weight_decay_factor_by_learning_rate = optimizer.multiply_weight_decay_factor_by_learning_rate
    message.gradient_accumulation_status = _ENABLED if optimizer.gradient_accumulation else _DISABLED
    message.low_dimensional_packing_status = _ENABLED if optimizer.low_dimensional_packing else _UNSPECIFIED
    if optimizer.hot_id_replication:
        message.hot_id_replication_configuration.status = _ENABLED
    if optimizer.simulated_quantization is not None:
        message.simulated_quantization.enabled = True
        message.simulated_quantization.num_buckets = optimizer.simulated_quantization.num_buckets
        _set_limits(message.simulated_quantization, "clipping_limits", optimizer.simulated_quantization.clipping_limits)
    hyper_parameters = getattr(message, optimizer.wire_name)
    hyper_parameters.SetInParent()
    for name in added_fields(type(optimizer)):
        value = getattr(optimizer, name)
        if isinstance(value, DynamicInput):
            getattr(hyper_parameters, name).tag = value.tag
        elif isinstance(value, bytes):
            getattr(hyper_parameters, name).ParseFromString(value)
        else:
            setattr(hyper_parameters, name, value)
    return message


def _status(message: Any, field_name: str, highest: int) -> int:
    # Proto3 keeps numbers that an enum does not know.
    status = int(getattr(message, field_name))
    if not _UNSPECIFIED <= status <= highest:
        raise ConfigError(
            f"{field_name} must be one of its enum's values, got {status} ({message.DESCRIPTOR.name}.{field_name})"
        )
    return status


def _value(value: Any) -> Any:
    if hasattr(value, "tag"):
        return DynamicInput(value.tag)
    return value.SerializeToString() if hasattr(value, "SerializeToString") else value


def _learning_rate(message: Any) -> float | DynamicInput:
    kind = message.WhichOneof("learning_rate")
    if kind is None:
        raise ConfigError("a learning rate is missing: set LearningRate.constant or LearningRate.dynamic")
    return DynamicInput(message.dynamic.tag) if kind == "dynamic" else message.constant


def _limits(message: Any) -> Limits:
    lower = message.lower.value if message.HasField("lower") else None
    upper = message.upper.value if message.HasField("upper") else None
    return lower, upper


def _set_limits(message: Any, field_name: str, limits: Limits) -> None:
    for side, value in zip(("lower", "upper"), limits, strict=True):
        if value is not None:
            getattr(getattr(message, field_name), side).value = value


def _quantization(message: Any) -> SimulatedQuantization | None:
    if not message.enabled:
        return None
    lower, upper = _limits(message.clipping_limits)
    return SimulatedQuantization(
        clipping_limits=(-math.inf if lower is None else lower, math.inf if upper is None else upper),
        num_buckets=message.num_buckets,
    )
